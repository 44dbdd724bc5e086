"""A message that failed for good is kept whole, or deleted where there is no table for it."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn
from uuid import uuid4

import pytest

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.queue import DONE, Claim, ConstantRetry, Dead, Done, NoRetry, Outcome, Retry
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import POLLING, Rig, Seen
from tests.waiting import eventually


class NoSuchOrder(Exception):
    pass


class RaisingRepr(Exception):
    def __repr__(self) -> NoReturn:
        raise RuntimeError("no repr")


async def failing(claim: Claim) -> Done:
    raise NoSuchOrder("number 7")


class TestLetter:
    async def test_has_everything_that_the_message_had(self, driver_rig: Rig) -> None:
        fields: dict[str, Any] = {"headers": {"a": [1, {"b": None}]}, "key": "customer", "priority": -4}
        fields |= {"queue": "orders", "timer_id": "t", "message_id": uuid4()}
        (number,) = await driver_rig.publish(Envelope(body=b"\x00\xff body", **fields))
        created = (await driver_rig.row())["created_at"]
        await driver_rig.work(failing, retry_strategy=NoRetry())
        await driver_rig.witness.wait(events.Died)
        (letter,) = await driver_rig.dead()
        kept = fields | {"original_id": number, "payload": b"\x00\xff body", "created_at": created}
        assert {name: letter[name] for name in kept} == kept

    async def test_says_what_went_wrong(self, driver_rig: Rig) -> None:
        await driver_rig.ended(events.Died, failing, "a", retry_strategy=NoRetry())
        (letter,) = await driver_rig.dead()
        assert letter["failure_reason"] == "retry_terminal"
        assert letter["error_type"].endswith("test_dead.NoSuchOrder")
        assert letter["error_message"] == "number 7"
        assert letter["last_exception"] == "NoSuchOrder('number 7')"
        assert letter["traceback"].startswith("Traceback")
        assert "in failing" in letter["traceback"]

    async def test_counts_the_attempts_and_knows_their_times(self, driver_rig: Rig) -> None:
        before = datetime.now(UTC) - timedelta(seconds=5)
        strategy = ConstantRetry(delay_seconds=0.02, max_attempts=3)
        await driver_rig.ended(events.Died, failing, "a", retry_strategy=strategy)
        (letter,) = await driver_rig.dead()
        assert (letter["attempts_count"], letter["deliveries_count"]) == (3, 3)
        assert before < letter["first_attempt_at"] < letter["last_attempt_at"] <= letter["failed_at"]

    async def test_has_the_reason_that_the_handler_gave(self, driver_rig: Rig) -> None:
        reasons = ["rejected", "x" * 500, "nul \x00", "größer"]

        async def handle(claim: Claim) -> Outcome:
            return Dead(reasons[int(claim.payload)])

        await driver_rig.ended(events.Died, handle, *"0123")
        letters = await driver_rig.dead()
        assert [letter["failure_reason"][:4] for letter in letters] == [reason[:4] for reason in reasons]
        assert {(letter["error_type"], letter["traceback"]) for letter in letters} == {(None, None)}

    async def test_is_told_once_it_is_written(self, rig: Rig) -> None:
        await rig.work(failing, retry_strategy=NoRetry())
        (number,) = await rig.put("a")
        died = await rig.witness.wait(events.Died)
        assert (died.id, died.kept, died.reason, type(died.error)) == (number, True, "retry_terminal", NoSuchOrder)
        assert await rig.is_empty()

    @pytest.mark.parametrize("breaks", [False, True], ids=["its own renderer", "a renderer that raises"])
    async def test_is_written_whatever_the_error_is(self, driver_rig: Rig, breaks: bool) -> None:
        rig = driver_rig
        raised = [RaisingRepr("x"), *map(ValueError, ("nul \x00", "surrogate \udc80", "x" * 2_000_000))]

        async def handle(claim: Claim) -> NoReturn:
            raise raised[int(claim.payload)]

        def raising_renderer(error: BaseException) -> NoReturn:
            raise KeyError("renderer")

        client = rig.another_client(last_exception_renderer=raising_renderer if breaks else None)
        await rig.ended(events.Died, handle, *"0123", client=client, retry_strategy=NoRetry(), **POLLING)
        counts = [letter["attempts_count"] for letter in await rig.dead()]
        assert (counts, len(rig.witness.of(events.Started)), await rig.is_empty()) == ([1] * 4, 4, True)


class TestWithoutTable:
    async def test_the_message_is_deleted(self, driver_rig: Rig) -> None:
        client = driver_rig.another_client(dead_letters=False)
        died = await driver_rig.ended(events.Died, failing, "a", client=client, retry_strategy=NoRetry())
        assert (died.kept, await driver_rig.is_empty(), await driver_rig.dead()) == (False, True, [])

    async def test_messages_with_keys_go_on(self, rig: Rig) -> None:
        handle = Seen(lambda claim: Dead() if claim.payload == b"a" else DONE)
        await rig.work(handle, client=rig.another_client(dead_letters=False))
        await rig.put("a", "b", key="k")
        await rig.witness.wait(events.Handled)


@pytest.mark.slow
async def test_a_refused_letter_is_parked_although_the_connection_breaks_at_that_moment(
    rig: Rig, intercept: Intercept, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[str] = []

    @intercept
    async def breaking(name: str, values: Mapping[str, Any], send: Send) -> Any:
        if name == "settle_apart" and len(broken) < 2:
            broken.append(name)
            raise ConnectionResetError
        return await send()

    parked = "select count(*) from {t} where next_attempt_at = 'infinity'"
    monkeypatch.setattr("faststream_outbox._internal.queue.pending.APART_SECONDS", 0.1)
    await rig.sql("alter table {d} add constraint none_at_all check (false)")
    await rig.work(failing, retry_strategy=NoRetry())
    await rig.put("a")
    await eventually(lambda: rig.one(parked), message="it is parked")
    assert len(broken) == 2


class TestDeliveries:
    async def test_the_handler_is_not_invoked_on_the_claim_after_max_deliveries(self, driver_rig: Rig) -> None:
        options = {"max_deliveries": 3, "retry_strategy": ConstantRetry(delay_seconds=0.01)}
        died = await driver_rig.ended(events.Died, failing, "a", **options)
        (letter,) = await driver_rig.dead()
        assert (died.reason, len(driver_rig.witness.of(events.Started))) == ("max_deliveries", 3)
        assert (letter["attempts_count"], letter["deliveries_count"]) == (3, 4)

    async def test_an_overdelivered_message_in_a_batch_spares_the_others(self, rig: Rig) -> None:
        async def handle(claims: list[Claim]) -> list[Done]:
            return [DONE] * len(claims)

        await rig.put("a", "b", "c")
        await rig.sql("update {t} set deliveries_count = 5 where payload = 'b'")
        await rig.work(handle, batch=True, max_deliveries=5)
        await rig.witness.wait(events.Handled, count=2)
        assert (await rig.witness.wait(events.Died)).reason == "max_deliveries"

    @pytest.mark.parametrize(
        ("on_dead", "handled"), [("block", [b"free"]), ("continue", [b"free", b"later"])], ids=["block", "continue"]
    )
    async def test_it_keeps_the_later_ones_of_its_key_and_batch_from_the_handler(
        self, rig: Rig, on_dead: str, handled: list[bytes]
    ) -> None:
        seen: list[bytes] = []

        async def handle(claims: list[Claim]) -> list[Done]:
            seen.extend(claim.payload for claim in claims)
            return [DONE] * len(claims)

        await rig.put("dead", "later", key="k")
        await rig.put("free", key="other")
        await rig.sql("update {t} set deliveries_count = 5 where payload = 'dead'")
        await rig.work(handle, batch=True, max_deliveries=5, on_dead=on_dead)
        await rig.witness.wait(events.Died, reason="max_deliveries")
        await rig.witness.wait(events.Handled, count=len(handled))
        assert seen == handled


class Panic(BaseException):
    """What a Rust extension raises."""


class TestHook:
    async def test_a_plain_function_is_called_with_the_claim(self, rig: Rig) -> None:
        called: list[int] = []
        await rig.work(failing, retry_strategy=NoRetry(), on_terminal_failure=lambda claim: called.append(claim.id))
        numbers = await rig.put("a")
        await rig.witness.wait(events.Died)
        assert called == numbers

    async def test_a_coroutine_is_awaited_before_the_letter_is_written(self, rig: Rig) -> None:
        seen: list[int] = []

        async def hook(claim: Claim) -> None:
            seen.append(len(await rig.dead()))

        await rig.ended(events.Died, failing, "a", retry_strategy=NoRetry(), on_terminal_failure=hook)
        assert seen == [0]

    @pytest.mark.parametrize(
        ("error", "is_awaited"), [(KeyError("hook"), False), (Panic(), False), (asyncio.CancelledError(), True)]
    )
    async def test_one_that_raises_is_told_and_changes_nothing(
        self, rig: Rig, error: BaseException, is_awaited: bool
    ) -> None:
        def hook(claim: Claim) -> None:
            raise error

        async def awaited(claim: Claim) -> None:
            raise error

        async def handle(claim: Claim) -> Done:
            return DONE if claim.payload == b"good" else await failing(claim)

        hooks = {"on_terminal_failure": awaited if is_awaited else hook}
        await rig.work(handle, retry_strategy=NoRetry(), **hooks)
        await rig.put("a", "good")
        failed = await rig.witness.wait(events.HookFailed)
        await rig.witness.wait(events.Died)
        await rig.witness.wait(events.Handled)
        assert (failed.hook, type(failed.error), len(await rig.dead())) == ("on_terminal_failure", type(error), 1)

    async def test_it_is_not_called_for_a_retry(self, rig: Rig) -> None:
        called: list[Claim] = []

        async def handle(claim: Claim) -> Outcome:
            return Retry(0.01) if claim.attempts_count < 2 else DONE

        await rig.ended(events.Handled, handle, "a", on_terminal_failure=called.append)
        assert called == []
