"""`Deciding`: the first decision counts, and what takes it back comes later, in one order."""

import ast
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from faststream import AckPolicy
from faststream.exceptions import AckMessage, SkipMessage

from faststream_outbox._internal.broker.message import NOT_BEGUN_SECONDS, Deciding, claims_of
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.message import OutboxMessage
from faststream_outbox._internal.memory.log import MemoryLog
from faststream_outbox._internal.outcomes.outcome import (
    DONE,
    RELEASE,
    SETTLED,
    STOPPED,
    Dead,
    Outcome,
    Retry,
    Undecided,
)
from faststream_outbox.errors import OutboxWarning
from tests.cases import each

BROKER = Path(__file__).parents[2] / "faststream_outbox" / "_internal" / "broker"
FAILED, LATER, SKIPPED = ValueError(), TimeoutError(), SkipMessage()
AGAIN = Retry(0.0, counts=False)


def deliveries(count: int = 1) -> list[Delivery]:
    return [Delivery(row, "orders") for row in MemoryLog().append([OutboxMessage("orders", b"1", {})] * count)]


STEPS: dict[str, Callable[[Deciding], object]] = {
    "acks": lambda deciding: Deciding.by_hand(deciding.claims, lambda claim: DONE, "a test"),
    "nacks": lambda deciding: Deciding.by_hand(deciding.claims, lambda claim: Retry(), "a test"),
    "rejects": lambda deciding: Deciding.by_hand(deciding.claims, lambda claim: Dead(), "a test"),
    "is stopped": lambda deciding: deciding.cut_off(STOPPED),
    "is cut off": lambda deciding: deciding.cut_off(Retry(error=LATER)),
    "skips": lambda deciding: deciding.instructed(SKIPPED, 300.0),
    "raises AckMessage": lambda deciding: deciding.instructed(AckMessage(), 300.0),
    "does not begin": lambda deciding: deciding.not_begun(FAILED),
    "fails": lambda deciding: deciding.failed(FAILED, can_forward=True),
    "fails to forward": lambda deciding: deciding.failed(FAILED, can_forward=False),
    "cannot publish": lambda deciding: deciding.unpublished(FAILED),
    "is rolled back": lambda deciding: deciding.rolled_back(is_done=False, policy=AckPolicy.NACK_ON_ERROR),
    "cannot commit": lambda deciding: deciding.not_committed(LATER),
    "commits": lambda deciding: deciding.committed(),
}


@each(
    ("steps", "outcome"),
    [
        ([], Undecided()),
        (["acks"], DONE),
        (["rejects", "acks"], Dead()),
        (["acks", "is stopped"], DONE),
        (["is stopped", "acks"], STOPPED),
        (["is cut off", "skips"], Retry(error=LATER)),
        (["acks", "skips"], DONE),
        (["skips", "acks"], Retry(300.0, counts=False)),
        (["raises AckMessage"], Undecided()),
        (["does not begin"], Retry(NOT_BEGUN_SECONDS, FAILED, counts=False)),
        (["fails"], Undecided(FAILED)),
        (["fails to forward"], RELEASE),
        (["fails to forward", "rejects"], RELEASE),
        (["acks", "fails to forward"], DONE),
        (["rejects", "fails to forward"], Dead()),
        (["nacks", "fails to forward"], RELEASE),
        (["acks", "cannot publish"], Retry(error=FAILED)),
        (["acks", "cannot publish", "fails to forward"], RELEASE),
        (["rejects", "cannot publish"], Dead()),
        (["cannot publish"], Undecided()),
        (["acks", "fails", "is rolled back"], Retry(error=FAILED)),
        (["rejects", "fails", "is rolled back"], Dead()),
        (["fails", "is rolled back"], Undecided(FAILED)),
        (["acks", "commits"], SETTLED),
        (["commits"], SETTLED),
        (["acks", "cannot commit"], Retry(error=LATER)),
        (["acks", "cannot commit", "acks"], Retry(error=LATER)),
    ],
)
def test_what_comes_of_steps(steps: list[str], outcome: Outcome) -> None:
    deciding = Deciding(deliveries()[0], is_manual=False)
    for step in steps:
        STEPS[step](deciding)
    assert Deciding.outcomes(deciding.claims) == [outcome]


def test_what_is_cut_off_says_whether_anything_was_undecided() -> None:
    batch = deliveries(2)
    batch[0].decide(DONE)
    assert Deciding(batch, is_manual=False).cut_off(STOPPED)
    assert not Deciding(batch, is_manual=False).cut_off(RELEASE)
    assert [claim.decision for claim in batch] == [DONE, STOPPED]


def test_instruction_under_manual_is_an_error_to_keep() -> None:
    deciding = Deciding(deliveries()[0], is_manual=True)
    STEPS["skips"](deciding)
    assert Deciding.outcomes(deciding.claims) == [Undecided(SKIPPED)]


@each(
    ("is_manual", "is_done", "policy", "left"),
    [
        (False, True, AckPolicy.NACK_ON_ERROR, [AGAIN, Dead(), AGAIN]),
        (True, True, AckPolicy.MANUAL, [AGAIN, Dead(), Undecided()]),
        (False, False, AckPolicy.NACK_ON_ERROR, [Retry(), Dead(), Undecided()]),
        (False, False, AckPolicy.ACK, [DONE, Dead(), Undecided()]),
    ],
)
def test_batch_that_was_rolled_back(is_manual: bool, is_done: bool, policy: AckPolicy, left: list[Outcome]) -> None:
    batch = deliveries(3)
    batch[0].decide(DONE)
    batch[1].decide(Dead())
    deciding = Deciding(batch, is_manual=is_manual)
    deciding.rolled_back(is_done=is_done, policy=policy)
    assert Deciding.outcomes(deciding.claims) == left


@each(
    ("is_manual", "decisions", "is_open", "is_finished", "is_committed"),
    [
        (False, [None, None], True, True, False),
        (False, [DONE, None], False, True, False),
        (False, [DONE, Dead()], False, False, False),
        (True, [None, None], False, False, False),
        (True, [DONE, DONE], False, True, False),
        (False, [SETTLED, SETTLED], False, False, True),
        (False, [SETTLED, None], False, False, False),
    ],
)
def test_how_far_it_is(
    is_manual: bool, decisions: list[Outcome | None], is_open: bool, is_finished: bool, is_committed: bool
) -> None:
    batch = deliveries(2)
    for claim, decision in zip(batch, decisions, strict=True):
        claim.decision = decision
    deciding = Deciding(batch, is_manual=is_manual)
    assert (deciding.is_open, deciding.is_finished, deciding.is_committed) == (is_open, is_finished, is_committed)


def test_decision_that_comes_after_the_outcomes_changes_nothing_and_warns() -> None:
    deciding = Deciding(deliveries()[0], is_manual=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Deciding.outcomes(deciding.claims) == [Undecided()]
    with pytest.warns(OutboxWarning, match=r"ack\(\) came after the handler had returned"):
        Deciding.by_hand(deciding.claims, lambda claim: DONE, "ack()")
    assert Deciding.outcomes(deciding.claims) == [Undecided()]


def test_claims_are_found_behind_whatever_a_middleware_is_given() -> None:
    one, other = deliveries(2)
    assert claims_of(one) == [one]
    assert claims_of([one, other]) == claims_of((one, other)) == [one, other]
    assert claims_of([one, "no claim"]) == [one]
    assert claims_of(None) == claims_of(b"no claim") == []


def assigned(source: str) -> set[str]:
    targets: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets.append(node.target)
    return {target.attr for target in targets if isinstance(target, ast.Attribute)} & {"decision", "error"}


def test_nobody_else_in_the_broker_decides() -> None:
    deciders = {path.name for path in BROKER.glob("*.py") if assigned(path.read_text(encoding="utf-8"))}
    assert deciders == {"message.py"}
    (found,) = [
        node
        for node in ast.parse((BROKER / "message.py").read_text(encoding="utf-8")).body
        if assigned(ast.unparse(node))
    ]
    assert isinstance(found, ast.ClassDef)
    assert found.name == "Deciding"
