"""What becomes of a message, for every way in which its handler, a publisher or its transaction may end.

It is what the engine hears, first of a handler without a transaction of its own, then, where that differs, of one with
it. One text holds for all policies; four are for ACK, REJECT_ON_ERROR, NACK_ON_ERROR and MANUAL.
"""

import pytest
from faststream.exceptions import AckMessage, NackMessage, SkipMessage

from tests.broker.ends import Case, Panic, by_hand, cancelled, ended, one_by_hand, raises, returns

pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")
SOON = 0.01
Ends = str | tuple[str, str, str, str]


def but(always: str, *, manual: str) -> Ends:
    """Alike but under MANUAL."""
    return (always, always, always, manual)


def failed(of: str, first: str = "") -> Ends:
    """As each policy has it for an error; of a batch, behind its `first` message or for both."""
    ends = ("done", f"dead of {of}", f"retry of {of}", f"undecided of {of}")
    ack, reject, nack, manual = (f"{first}, {end}" if first else end for end in ends)
    return (ack, reject, nack, manual)


def kept(under_ack: str, otherwise: str) -> Ends:
    """Under ACK an error is forgotten."""
    return (under_ack, otherwise, otherwise, otherwise)


ACKED = but("done", manual="undecided of AckMessage"), but("settled", manual="undecided of AckMessage")
NACKED = but("retry", manual="undecided of NackMessage")
SKIPPED = but("retry after 300, uncounted", manual="undecided of SkipMessage")
TOO_LATE = "retry of TimeoutError"
BROKEN = "retry of ConnectionError"
ONE: dict[str, tuple[Case, Ends] | tuple[Case, Ends, Ends]] = {
    "returns": (Case(), but("done", manual="undecided"), but("settled", manual="undecided")),
    "raises": (Case(raises(ValueError)), failed("ValueError")),
    "raises what is no Exception": (Case(raises(Panic)), failed("Panic")),
    "raises AckMessage": (Case(raises(AckMessage)), *ACKED),
    "raises NackMessage": (Case(raises(NackMessage)), NACKED),
    "raises SkipMessage": (Case(raises(SkipMessage)), SKIPPED),
    "acks": (Case(by_hand("ack")), "done", "settled"),
    "nacks": (Case(by_hand("nack")), "retry"),
    "rejects": (Case(by_hand("reject")), "dead"),
    "rejects, then acks": (Case(by_hand("reject", "ack")), "dead"),
    "acks, then raises": (
        Case(by_hand("ack", then=raises(ValueError))),
        "done",
        kept("done", "retry of ValueError"),
    ),
    "nacks, then raises": (Case(by_hand("nack", then=raises(ValueError))), "retry"),
    "acks, then raises SkipMessage": (
        Case(by_hand("ack", then=raises(SkipMessage))),
        "done",
        ("done", "retry", "retry", "retry of SkipMessage"),
    ),
    "stopped": (Case(cancelled(), is_stopped=True), "CancelledError, decided: nothing"),
    "stopped, and returns": (Case(cancelled(returns), is_stopped=True), "given back, counted"),
    "stopped, and raises": (Case(cancelled(raises(ValueError)), is_stopped=True), "given back, counted"),
    "stopped, and raises AckMessage": (Case(cancelled(raises(AckMessage)), is_stopped=True), *ACKED),
    "acks, then stopped": (
        Case(by_hand("ack", then=cancelled()), is_stopped=True),
        "CancelledError, decided: done",
        kept("CancelledError, decided: done", "CancelledError, decided: retry of CancelledError"),
    ),
    "acks, then stopped, and returns": (
        Case(by_hand("ack", then=cancelled(returns)), is_stopped=True),
        "done",
        "settled",
    ),
    "out of time": (Case(cancelled(), seconds=SOON), TOO_LATE),
    "out of time, and returns": (Case(cancelled(returns), seconds=SOON), TOO_LATE),
    "out of time, and raises": (Case(cancelled(raises(ValueError)), seconds=SOON), TOO_LATE),
    "out of time, and raises AckMessage": (Case(cancelled(raises(AckMessage)), seconds=SOON), *ACKED),
    "acks, then out of time": (
        Case(by_hand("ack", then=cancelled()), seconds=SOON),
        "done",
        kept("done", "retry of CancelledError"),
    ),
    "acks, then out of time, and returns": (
        Case(by_hand("ack", then=cancelled(returns)), seconds=SOON),
        "done",
        "settled",
    ),
    "returns what cannot be published": (Case(can_publish=False), failed("ConnectionError")),
    "acks, and returns what cannot be published": (Case(by_hand("ack"), can_publish=False), BROKEN),
    "rejects, and returns what cannot be published": (Case(by_hand("reject"), can_publish=False), "dead"),
    "cannot forward": (Case(can_forward=False, can_publish=False), "given back"),
    "raises, and could not forward": (Case(raises(ValueError), can_forward=False), "given back"),
    "acks, and cannot forward": (Case(by_hand("ack"), can_forward=False, can_publish=False), "given back"),
    "rejects, then raises, and could not forward": (
        Case(by_hand("reject", then=raises(ValueError)), can_forward=False),
        "dead",
    ),
    "raises NackMessage, and could not forward": (Case(raises(NackMessage), can_forward=False), NACKED),
    "returns, and its commit fails": (
        Case(can_commit=False),
        but("done", manual="undecided"),
        but(BROKEN, manual="undecided"),
    ),
    "acks, and its commit fails": (Case(by_hand("ack"), can_commit=False), "done", BROKEN),
    "nacks, and its commit would fail": (Case(by_hand("nack"), can_commit=False), "retry"),
    "raises AckMessage, and its commit fails": (
        Case(raises(AckMessage), can_commit=False),
        ACKED[0],
        but(BROKEN, manual="undecided of AckMessage"),
    ),
}
BATCH: dict[str, tuple[Case, Ends] | tuple[Case, Ends, Ends]] = {
    "returns": (
        Case(),
        but("done, done", manual="undecided, undecided"),
        but("settled, settled", manual="undecided, undecided"),
    ),
    "raises": (
        Case(raises(ValueError)),
        (
            "done, done",
            "dead of ValueError, dead of ValueError",
            "retry of ValueError, retry of ValueError",
            "undecided of ValueError, undecided of ValueError",
        ),
    ),
    "raises SkipMessage": (
        Case(raises(SkipMessage)),
        but(
            "retry after 300, uncounted, retry after 300, uncounted",
            manual="undecided of SkipMessage, undecided of SkipMessage",
        ),
    ),
    "acks one": (
        Case(one_by_hand("ack")),
        but("done, done", manual="done, undecided"),
        but("settled, settled", manual="retry after 0, uncounted, undecided"),
    ),
    "nacks one": (
        Case(one_by_hand("nack")),
        but("retry, done", manual="retry, undecided"),
        but("retry, retry after 0, uncounted", manual="retry, undecided"),
    ),
    "rejects one": (
        Case(one_by_hand("reject")),
        but("dead, done", manual="dead, undecided"),
        but("dead, retry after 0, uncounted", manual="dead, undecided"),
    ),
    "acks one, then all": (Case(one_by_hand("ack", then=by_hand("ack"))), "done, done", "settled, settled"),
    "rejects one, then acks all": (
        Case(one_by_hand("reject", then=by_hand("ack"))),
        "dead, done",
        "dead, retry after 0, uncounted",
    ),
    "acks one, then raises": (
        Case(one_by_hand("ack", then=raises(ValueError))),
        failed("ValueError", first="done"),
        ("done, done", *failed("ValueError", first="retry of ValueError")[1:]),
    ),
    "acks one, then raises what is no Exception": (
        Case(one_by_hand("ack", then=raises(Panic))),
        failed("Panic", first="done"),
        ("done, done", *failed("Panic", first="retry of Panic")[1:]),
    ),
    "acks one, then raises SkipMessage": (
        Case(one_by_hand("ack", then=raises(SkipMessage))),
        but("done, retry after 300, uncounted", manual="done, undecided of SkipMessage"),
        (
            "done, retry after 300, uncounted",
            "retry, retry after 300, uncounted",
            "retry, retry after 300, uncounted",
            "retry of SkipMessage, undecided of SkipMessage",
        ),
    ),
    "acks one, then stopped": (
        Case(one_by_hand("ack", then=cancelled()), is_stopped=True),
        "CancelledError, decided: done, nothing",
        kept("CancelledError, decided: done, nothing", "CancelledError, decided: retry of CancelledError, nothing"),
    ),
    "acks one, then stopped, and returns": (
        Case(one_by_hand("ack", then=cancelled(returns)), is_stopped=True),
        "done, given back, counted",
        kept("done, given back, counted", "retry, given back, counted"),
    ),
    "acks one, then out of time": (
        Case(one_by_hand("ack", then=cancelled()), seconds=SOON),
        "done, retry of TimeoutError",
        kept("done, retry of TimeoutError", "retry of CancelledError, retry of TimeoutError"),
    ),
    "acks one, then out of time, and returns": (
        Case(one_by_hand("ack", then=cancelled(returns)), seconds=SOON),
        "done, retry of TimeoutError",
        kept("done, retry of TimeoutError", "retry, retry of TimeoutError"),
    ),
    "acks one, and returns what cannot be published": (
        Case(one_by_hand("ack"), can_publish=False),
        failed("ConnectionError", first=BROKEN),
    ),
    "acks one, and cannot forward": (
        Case(one_by_hand("ack"), can_forward=False, can_publish=False),
        "given back, given back",
    ),
    "acks one, and its commit fails": (
        Case(one_by_hand("ack"), can_commit=False),
        but("done, done", manual="done, undecided"),
        but(f"{BROKEN}, {BROKEN}", manual="retry after 0, uncounted, undecided"),
    ),
}


async def ends_as(expected: tuple[Case, Ends] | tuple[Case, Ends, Ends], count: int) -> None:
    case, *of = expected
    for transactional, ends in ((False, of[0]), (True, of[-1])):
        of_policies = (ends,) * 4 if isinstance(ends, str) else ends
        assert await ended(case, transactional=transactional, count=count) == of_policies


@pytest.mark.parametrize("what", ONE)
async def test_end_of_a_message(what: str) -> None:
    await ends_as(ONE[what], 1)


@pytest.mark.parametrize("what", BATCH)
async def test_end_of_a_batch(what: str) -> None:
    await ends_as(BATCH[what], 2)
