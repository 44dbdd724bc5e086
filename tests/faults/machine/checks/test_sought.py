"""A group that is sought, with made-up readings: each that is not right is named for one reason."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.faults.machine.checks import sought
from tests.faults.machine.facts import Business, Effect, Facts, Letter, Seek, Stand
from tests.faults.machine.runs import tell
from tests.faults.machine.stage import OF_SOUGHT_GROUP

POISON = 3
MESSAGES = (1, 2, 3, 4, 5)
SEEK_AT = 100
"""Its number among the effects; those before it are numbered from 1."""


def effects(first: int, *versions: int, key: str = "k") -> list[Effect]:
    return [Effect(first + at, OF_SOUGHT_GROUP, f"{key}{version}", key, version) for at, version in enumerate(versions)]


def read(before: Sequence[int], behind: int | None, after: Sequence[int] = ()) -> Facts:
    """Five messages of a key, of which the third is poison; read, put behind one of them, and read again."""
    return Facts(
        business=[
            Business(f"k{number}", "facts", "k", number, number == POISON, body=json.dumps({})) for number in MESSAGES
        ],
        stands=[Stand(f"k{number}", number // 2, number) for number in MESSAGES],
        effects=[*effects(1, *before), *effects(SEEK_AT + 1, *after)],
        seeks=[] if behind is None else [Seek(SEEK_AT, behind // 2, behind)],
        letters=[Letter(f"k{POISON}", OF_SOUGHT_GROUP, "{}", None, "parked", None, None, None)],
    )


def found(facts: Facts) -> list[tuple[str, str]]:
    return [(wrong.kind, wrong.message) for wrong in sought.check(tell([]), facts)]


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(read((1, 2, 4, 5), None), id="never sought"),
        pytest.param(read((1, 2, 4, 5), 0, (1, 2, 4, 5)), id="back to the beginning"),
        pytest.param(read((1, 2), 0, (1, 2, 4, 5)), id="back before it had come to the end"),
        pytest.param(read((1, 2, 4), 1, (2, 4, 5)), id="back to the middle"),
        pytest.param(read((1,), 5), id="to the end, and nothing came"),
        pytest.param(read((1,), 4, (5,)), id="forward, and the rest"),
        pytest.param(read((1,), 2, (2, 4, 5)), id="what waited before the place goes on waiting"),
    ],
)
def test_good_reading_passes(facts: Facts) -> None:
    assert found(facts) == []


@pytest.mark.parametrize(
    ("facts", "kind", "message"),
    [
        pytest.param(read((1, 2, 4, 5), 0, (1, 4, 5)), "lost", "k2", id="left out after a seek back"),
        pytest.param(read((1, 2, 4, 5), 1, (4, 5)), "lost", "k2", id="the first one is left out"),
        pytest.param(read((1, 2, 4, 5), 0, (1, 2, 4)), "lost", "k5", id="not read to the end again"),
        pytest.param(read((1, 2, 4, 5), 4), "lost", "k5", id="nothing read after the seek"),
        pytest.param(read((1, 4), 5), "lost", "k2", id="left out in a reading that a seek ended"),
        pytest.param(read((1, 2, 4), None), "lost", "k5", id="never sought, and missed"),
        pytest.param(read((1, 2, 4, 5), 0, (1, 2, 4, 4, 5)), "effect doubled", "k4", id="twice in one reading"),
        pytest.param(read((1, 2, 4, 5), 0, (1, 2, 4, 5, 2)), "out of order", "k2", id="back without a seek"),
        pytest.param(replace(read((1, 2, 4, 5), 0, (1, 2, 4, 5)), letters=[]), "lost", "k3", id="poison not parked"),
    ],
)
def test_wrong_reading_is_named(facts: Facts, kind: str, message: str) -> None:
    assert found(facts) == [(kind, message)]


def test_run_without_the_group_says_nothing() -> None:
    assert found(replace(read((), None), places=frozenset({"orders"}))) == []
