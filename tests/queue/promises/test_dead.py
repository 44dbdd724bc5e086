"""A message that failed for good is kept whole, or deleted where there is no table for it."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.queue import DONE, Claim, ConstantRetry, Dead, Done, NoRetry, Outcome, Retry
from tests.queue.rig import POLLING, Rig
from tests.waiting import eventually


class NoSuchOrder(Exception):
    pass


async def failing(claim: Claim) -> Done:
    raise NoSuchOrder("number 7")


class TestLetter:
    async def test_has_everything_that_the_message_had(self, driver_rig: Rig) -> None:
        rig = driver_rig
        envelope = Envelope(
            queue="orders",
            body=b"\x00\xff body",
            headers={"a": [1, {"b": None}]},
            key="customer",
            priority=-4,
            timer_id="t",
            message_id=uuid4(),
        )
        (number,) = await rig.publish(envelope)
        created = (await rig.row())["created_at"]
        await rig.work(failing, retry_strategy=NoRetry())
        await rig.witness.wait(events.Died)
        (letter,) = await rig.dead()
        kept = ("original_id", "queue", "payload", "headers", "key", "priority", "timer_id", "message_id", "created_at")
        assert [letter[name] for name in kept] == [
            *(number, "orders", b"\x00\xff body", {"a": [1, {"b": None}]}, "customer", -4, "t"),
            *(envelope.message_id, created),
        ]

    async def test_says_what_went_wrong(self, driver_rig: Rig) -> None:
        await driver_rig.work(failing, retry_strategy=NoRetry())
        await driver_rig.put("a")
        await driver_rig.witness.wait(events.Died)
        (letter,) = await driver_rig.dead()
        assert letter["failure_reason"] == "retry_terminal"
        assert letter["error_type"].endswith("test_dead.NoSuchOrder")
        assert letter["error_message"] == "number 7"
        assert letter["last_exception"] == "NoSuchOrder('number 7')"
        assert letter["traceback"].startswith("Traceback")
        assert "in failing" in letter["traceback"]

    async def test_counts_the_attempts_and_knows_their_times(self, driver_rig: Rig) -> None:
        strategy = ConstantRetry(delay_seconds=0.02, max_attempts=3)
        before = datetime.now(UTC) - timedelta(seconds=5)
        await driver_rig.work(failing, retry_strategy=strategy)
        await driver_rig.put("a")
        await driver_rig.witness.wait(events.Died)
        (letter,) = await driver_rig.dead()
        assert (letter["attempts_count"], letter["deliveries_count"]) == (3, 3)
        assert before < letter["first_attempt_at"] < letter["last_attempt_at"] <= letter["failed_at"]

    @pytest.mark.parametrize("reason", ["rejected", "x" * 500, "nul \x00", "größer"])
    async def test_has_the_reason_that_the_handler_gave(self, driver_rig: Rig, reason: str) -> None:
        async def handle(claim: Claim) -> Outcome:
            return Dead(reason)

        await driver_rig.work(handle)
        await driver_rig.put("a")
        await driver_rig.witness.wait(events.Died)
        (letter,) = await driver_rig.dead()
        assert letter["failure_reason"][:4] == reason[:4]
        assert (letter["error_type"], letter["traceback"]) == (None, None)

    async def test_is_told_once_it_is_written(self, rig: Rig) -> None:
        await rig.work(failing, retry_strategy=NoRetry())
        (number,) = await rig.put("a")
        died = await rig.witness.wait(events.Died)
        assert (died.id, died.kept, died.reason, type(died.error)) == (number, True, "retry_terminal", NoSuchOrder)
        assert await rig.is_empty()

    async def test_many_at_once_are_all_kept(self, driver_rig: Rig) -> None:
        await driver_rig.put(*(str(number) for number in range(100)))
        await driver_rig.work(failing, retry_strategy=NoRetry(), max_workers=10, fetch_batch_size=50)
        await driver_rig.witness.wait(events.Died, count=100)
        letters = await driver_rig.dead()
        assert sorted(int(letter["payload"]) for letter in letters) == list(range(100))


class TestWithoutTable:
    async def test_the_message_is_deleted(self, driver_rig: Rig) -> None:
        client = driver_rig.another_client(dead_letters=False)
        await driver_rig.work(failing, client=client, retry_strategy=NoRetry())
        await driver_rig.put("a")
        died = await driver_rig.witness.wait(events.Died)
        assert (died.kept, await driver_rig.is_empty(), await driver_rig.dead()) == (False, True, [])

    async def test_messages_with_keys_go_on(self, driver_rig: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            return Dead() if claim.payload == b"a" else DONE

        client = driver_rig.another_client(dead_letters=False)
        await driver_rig.work(handle, client=client)
        await driver_rig.put("a", "b", key="k")
        await driver_rig.witness.wait(events.Handled)


class TestRefused:
    @pytest.mark.slow
    async def test_a_refused_letter_does_not_take_its_neighbours_along(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Poison hurts only itself, also where the table has a rule of its own."""
        monkeypatch.setattr("faststream_outbox._internal.queue.pending.APART_SECONDS", 0.1)
        await rig.sql("alter table {d} add constraint no_poison check (payload <> 'poison')")
        worker = rig.worker(failing, retry_strategy=NoRetry(), max_workers=10)
        await rig.put("a", "poison", "b", "c")
        await worker.start()
        await rig.witness.wait(events.OutcomeRefused)
        await rig.witness.wait(events.Died, count=3)
        refused = [event.id for event in rig.witness.of(events.OutcomeRefused)]
        assert (len(refused), [row["payload"] for row in await rig.sql("select payload from {t}")]) == (1, [b"poison"])

    @pytest.mark.slow
    async def test_a_message_is_parked_although_the_connection_breaks_at_that_moment(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from faststream_outbox._internal.connections.dedicated import DedicatedConnection

        fetch, broken = DedicatedConnection.fetch, []

        async def breaking(connection: DedicatedConnection, statement: object, values: object) -> object:
            if getattr(statement, "name", "") == "settle_apart" and len(broken) < 2:
                broken.append(1)
                raise ConnectionResetError
            return await fetch(connection, statement, values)  # type: ignore[arg-type]

        monkeypatch.setattr(DedicatedConnection, "fetch", breaking)
        monkeypatch.setattr("faststream_outbox._internal.queue.pending.APART_SECONDS", 0.1)
        await rig.sql("alter table {d} add constraint none_at_all check (false)")
        await rig.work(failing, retry_strategy=NoRetry())
        await rig.put("a")

        async def is_parked() -> bool:
            return bool(await rig.one("select count(*) from {t} where next_attempt_at = 'infinity'"))

        await eventually(is_parked)
        assert len(broken) == 2


class TestDeliveries:
    async def test_the_handler_is_not_invoked_on_the_claim_after_max_deliveries(self, driver_rig: Rig) -> None:
        await driver_rig.work(failing, max_deliveries=3, retry_strategy=ConstantRetry(delay_seconds=0.01))
        await driver_rig.put("a")
        died = await driver_rig.witness.wait(events.Died)
        (letter,) = await driver_rig.dead()
        assert (died.reason, len(driver_rig.witness.of(events.Started))) == ("max_deliveries", 3)
        assert (letter["attempts_count"], letter["deliveries_count"]) == (3, 4)

    async def test_deliveries_by_crashed_processes_count(self, rig: Rig) -> None:
        await rig.put("a")
        await rig.sql(
            "update {t} set acquired_token = gen_random_uuid(), deliveries_count = 2,"
            " acquired_at = now() - interval '1 h'"
        )
        await rig.work(failing, max_deliveries=2, **POLLING)
        await rig.witness.wait(events.Died, reason="max_deliveries")
        assert rig.witness.of(events.Started) == []

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
        await rig.witness.wait(events.Died)
        await rig.witness.wait(events.Handled, count=len(handled))
        assert seen == handled


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

        await rig.work(failing, retry_strategy=NoRetry(), on_terminal_failure=hook)
        await rig.put("a")
        await rig.witness.wait(events.Died)
        assert seen == [0]

    async def test_one_that_raises_is_told_and_changes_nothing(self, rig: Rig) -> None:
        def hook(claim: Claim) -> None:
            raise KeyError("hook")

        await rig.work(failing, retry_strategy=NoRetry(), on_terminal_failure=hook)
        await rig.put("a")
        failed = await rig.witness.wait(events.HookFailed)
        await rig.witness.wait(events.Died)
        assert (failed.hook, type(failed.error), len(await rig.dead())) == ("on_terminal_failure", KeyError, 1)

    async def test_it_is_not_called_for_a_retry(self, rig: Rig) -> None:
        called: list[Claim] = []

        async def handle(claim: Claim) -> Outcome:
            return Retry(0.01) if claim.attempts_count < 2 else DONE

        await rig.work(handle, on_terminal_failure=called.append)
        await rig.put("a")
        await rig.witness.wait(events.Handled)
        assert called == []
