"""A COMMIT that raises: the question is asked until it is answered, and the answer decides."""

import asyncio
from typing import Any

import pytest

from faststream_outbox._internal.connections import transactions as uncertain
from faststream_outbox._internal.connections.transactions import Fate, commit
from faststream_outbox.errors import LeaseLost


class Session:
    """A session whose commit raises, and which notes how it was ended."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
        self.ended: list[str] = []

    async def commit(self) -> None:
        if self.error is not None:
            raise self.error

    async def rollback(self) -> None:
        self.ended.append("rollback")

    async def invalidate(self) -> None:
        self.ended.append("invalidate")


class Refused(Exception):
    """An answer of the server's."""

    sqlstate = "23505"


class Lost(Exception):
    """No answer."""

    sqlstate = "08006"


async def committed(session: Any, *answers: Fate | Exception) -> list[BaseException]:
    """Commit, with these answers to the question; what was told."""
    left, reported = list(answers), []

    async def ask() -> Fate:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    await commit(session, ask, reported.append)
    assert left == []
    return reported


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncertain, "LONGEST_PAUSE", 0.0)


async def test_nothing_is_asked_where_the_commit_was_answered() -> None:
    assert await committed(Session(None)) == []


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([Fate.COMMITTED], id="answered"),
        pytest.param([Fate.OPEN, ConnectionError(), Fate.OPEN, Fate.COMMITTED], id="asked until it is answered"),
    ],
)
async def test_commit_that_came_about_is_told_and_not_raised(answers: list[Fate | Exception]) -> None:
    session = Session(Lost())
    away = [answer for answer in answers if isinstance(answer, Exception)]
    assert await committed(session, *answers) == [*away, session.error]
    assert session.ended == ["invalidate"]


@pytest.mark.parametrize(
    ("error", "answers", "raised", "ending"),
    [
        (Lost(), [Fate.ROLLED_BACK], Lost, "invalidate"),
        (Refused(), [Fate.ROLLED_BACK], Refused, "rollback"),
        (OSError(), [Fate.ROLLED_BACK], OSError, "invalidate"),
        (Lost(), [Fate.UNKNOWN], LeaseLost, "invalidate"),
        (asyncio.CancelledError(), [], asyncio.CancelledError, "invalidate"),
    ],
)
async def test_commit_that_did_not_come_about_is_raised(
    error: BaseException, answers: list[Fate], raised: type[BaseException], ending: str
) -> None:
    session = Session(error)
    with pytest.raises(raised):
        await committed(session, *answers)
    assert session.ended == [ending]
