"""What becomes of a message, for every way in which its handler, a publisher or its transaction may end.

It is what the engine hears, first of a handler without a transaction of its own, then of one with it. One text holds
for all policies; four are for ACK, REJECT_ON_ERROR, NACK_ON_ERROR and MANUAL.
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


ONE: dict[str, tuple[Case, Ends, Ends]] = {
    "returns": (Case(), but("done", manual="undecided"), but("settled", manual="undecided")),
    "raises": (
        Case(raises(ValueError)),
        ("done", "dead of ValueError", "retry of ValueError", "undecided of ValueError"),
        ("done", "dead of ValueError", "retry of ValueError", "undecided of ValueError"),
    ),
    "raises what is no Exception": (
        Case(raises(Panic)),
        ("done", "dead of Panic", "retry of Panic", "undecided of Panic"),
        ("done", "dead of Panic", "retry of Panic", "undecided of Panic"),
    ),
    "raises AckMessage": (
        Case(raises(AckMessage)),
        but("done", manual="undecided of AckMessage"),
        but("settled", manual="undecided of AckMessage"),
    ),
    "raises NackMessage": (
        Case(raises(NackMessage)),
        but("retry", manual="undecided of NackMessage"),
        but("retry", manual="undecided of NackMessage"),
    ),
    "raises SkipMessage": (
        Case(raises(SkipMessage)),
        but("retry after 300, uncounted", manual="undecided of SkipMessage"),
        but("retry after 300, uncounted", manual="undecided of SkipMessage"),
    ),
    "acks": (Case(by_hand("ack")), "done", "settled"),
    "nacks": (Case(by_hand("nack")), "retry", "retry"),
    "rejects": (Case(by_hand("reject")), "dead", "dead"),
    "rejects, then acks": (Case(by_hand("reject", "ack")), "dead", "dead"),
    "acks, then raises": (
        Case(by_hand("ack", then=raises(ValueError))),
        "done",
        ("done", "retry of ValueError", "retry of ValueError", "retry of ValueError"),
    ),
    "nacks, then raises": (Case(by_hand("nack", then=raises(ValueError))), "retry", "retry"),
    "acks, then raises SkipMessage": (
        Case(by_hand("ack", then=raises(SkipMessage))),
        "done",
        ("done", "retry", "retry", "retry of SkipMessage"),
    ),
    "stopped": (
        Case(cancelled(), is_stopped=True),
        "CancelledError, decided: nothing",
        "CancelledError, decided: nothing",
    ),
    "stopped, and returns": (Case(cancelled(returns), is_stopped=True), "given back, counted", "given back, counted"),
    "stopped, and raises": (
        Case(cancelled(raises(ValueError)), is_stopped=True),
        "given back, counted",
        "given back, counted",
    ),
    "stopped, and raises AckMessage": (
        Case(cancelled(raises(AckMessage)), is_stopped=True),
        but("done", manual="undecided of AckMessage"),
        but("settled", manual="undecided of AckMessage"),
    ),
    "acks, then stopped": (
        Case(by_hand("ack", then=cancelled()), is_stopped=True),
        "CancelledError, decided: done",
        (
            "CancelledError, decided: done",
            "CancelledError, decided: retry of CancelledError",
            "CancelledError, decided: retry of CancelledError",
            "CancelledError, decided: retry of CancelledError",
        ),
    ),
    "acks, then stopped, and returns": (
        Case(by_hand("ack", then=cancelled(returns)), is_stopped=True),
        "done",
        "settled",
    ),
    "out of time": (Case(cancelled(), seconds=SOON), "retry of TimeoutError", "retry of TimeoutError"),
    "out of time, and returns": (
        Case(cancelled(returns), seconds=SOON),
        "retry of TimeoutError",
        "retry of TimeoutError",
    ),
    "out of time, and raises": (
        Case(cancelled(raises(ValueError)), seconds=SOON),
        "retry of TimeoutError",
        "retry of TimeoutError",
    ),
    "out of time, and raises AckMessage": (
        Case(cancelled(raises(AckMessage)), seconds=SOON),
        but("done", manual="undecided of AckMessage"),
        but("settled", manual="undecided of AckMessage"),
    ),
    "acks, then out of time": (
        Case(by_hand("ack", then=cancelled()), seconds=SOON),
        "done",
        ("done", "retry of CancelledError", "retry of CancelledError", "retry of CancelledError"),
    ),
    "acks, then out of time, and returns": (
        Case(by_hand("ack", then=cancelled(returns)), seconds=SOON),
        "done",
        "settled",
    ),
    "returns what cannot be published": (
        Case(can_publish=False),
        ("done", "dead of ConnectionError", "retry of ConnectionError", "undecided of ConnectionError"),
        ("done", "dead of ConnectionError", "retry of ConnectionError", "undecided of ConnectionError"),
    ),
    "acks, and returns what cannot be published": (
        Case(by_hand("ack"), can_publish=False),
        "retry of ConnectionError",
        "retry of ConnectionError",
    ),
    "rejects, and returns what cannot be published": (Case(by_hand("reject"), can_publish=False), "dead", "dead"),
    "cannot forward": (Case(can_forward=False, can_publish=False), "given back", "given back"),
    "raises, and could not forward": (Case(raises(ValueError), can_forward=False), "given back", "given back"),
    "acks, and cannot forward": (
        Case(by_hand("ack"), can_forward=False, can_publish=False),
        "given back",
        "given back",
    ),
    "rejects, then raises, and could not forward": (
        Case(by_hand("reject", then=raises(ValueError)), can_forward=False),
        "dead",
        "dead",
    ),
    "raises NackMessage, and could not forward": (
        Case(raises(NackMessage), can_forward=False),
        but("retry", manual="undecided of NackMessage"),
        but("retry", manual="undecided of NackMessage"),
    ),
    "returns, and its commit fails": (
        Case(can_commit=False),
        but("done", manual="undecided"),
        but("retry of ConnectionError", manual="undecided"),
    ),
    "acks, and its commit fails": (Case(by_hand("ack"), can_commit=False), "done", "retry of ConnectionError"),
    "nacks, and its commit would fail": (Case(by_hand("nack"), can_commit=False), "retry", "retry"),
    "raises AckMessage, and its commit fails": (
        Case(raises(AckMessage), can_commit=False),
        but("done", manual="undecided of AckMessage"),
        but("retry of ConnectionError", manual="undecided of AckMessage"),
    ),
}
BATCH: dict[str, tuple[Case, Ends, Ends]] = {
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
        ("done, done", "done, dead of ValueError", "done, retry of ValueError", "done, undecided of ValueError"),
        (
            "done, done",
            "retry of ValueError, dead of ValueError",
            "retry of ValueError, retry of ValueError",
            "retry of ValueError, undecided of ValueError",
        ),
    ),
    "acks one, then raises what is no Exception": (
        Case(one_by_hand("ack", then=raises(Panic))),
        ("done, done", "done, dead of Panic", "done, retry of Panic", "done, undecided of Panic"),
        (
            "done, done",
            "retry of Panic, dead of Panic",
            "retry of Panic, retry of Panic",
            "retry of Panic, undecided of Panic",
        ),
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
        (
            "CancelledError, decided: done, nothing",
            "CancelledError, decided: retry of CancelledError, nothing",
            "CancelledError, decided: retry of CancelledError, nothing",
            "CancelledError, decided: retry of CancelledError, nothing",
        ),
    ),
    "acks one, then stopped, and returns": (
        Case(one_by_hand("ack", then=cancelled(returns)), is_stopped=True),
        "done, given back, counted",
        (
            "done, given back, counted",
            "retry, given back, counted",
            "retry, given back, counted",
            "retry, given back, counted",
        ),
    ),
    "acks one, then out of time": (
        Case(one_by_hand("ack", then=cancelled()), seconds=SOON),
        "done, retry of TimeoutError",
        (
            "done, retry of TimeoutError",
            "retry of CancelledError, retry of TimeoutError",
            "retry of CancelledError, retry of TimeoutError",
            "retry of CancelledError, retry of TimeoutError",
        ),
    ),
    "acks one, then out of time, and returns": (
        Case(one_by_hand("ack", then=cancelled(returns)), seconds=SOON),
        "done, retry of TimeoutError",
        (
            "done, retry of TimeoutError",
            "retry, retry of TimeoutError",
            "retry, retry of TimeoutError",
            "retry, retry of TimeoutError",
        ),
    ),
    "acks one, and returns what cannot be published": (
        Case(one_by_hand("ack"), can_publish=False),
        (
            "retry of ConnectionError, done",
            "retry of ConnectionError, dead of ConnectionError",
            "retry of ConnectionError, retry of ConnectionError",
            "retry of ConnectionError, undecided of ConnectionError",
        ),
        (
            "retry of ConnectionError, done",
            "retry of ConnectionError, dead of ConnectionError",
            "retry of ConnectionError, retry of ConnectionError",
            "retry of ConnectionError, undecided of ConnectionError",
        ),
    ),
    "acks one, and cannot forward": (
        Case(one_by_hand("ack"), can_forward=False, can_publish=False),
        "given back, given back",
        "given back, given back",
    ),
    "acks one, and its commit fails": (
        Case(one_by_hand("ack"), can_commit=False),
        but("done, done", manual="done, undecided"),
        but("retry of ConnectionError, retry of ConnectionError", manual="retry after 0, uncounted, undecided"),
    ),
}


def expected(ends: Ends) -> tuple[str, ...]:
    return (ends,) * 4 if isinstance(ends, str) else ends


@pytest.mark.parametrize("what", ONE)
async def test_end_of_a_message(what: str) -> None:
    case, plain, within = ONE[what]
    assert await ended(case, transactional=False) == expected(plain)
    assert await ended(case, transactional=True) == expected(within)


@pytest.mark.parametrize("what", BATCH)
async def test_end_of_a_batch(what: str) -> None:
    case, plain, within = BATCH[what]
    assert await ended(case, transactional=False, count=2) == expected(plain)
    assert await ended(case, transactional=True, count=2) == expected(within)
