"""A run of a handler: what the message asks for, and what the history is told of it.

A message's body says how long its handler takes, how often it fails first, and whether it is poison. So a message is
the same wherever and however often it runs.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from tests.faults.machine.history import FINISHED, STARTED, Pen
from tests.faults.machine.stage import MOST_ATTEMPTS

DONE, RETRY, DEAD, CANCELLED, BROKEN = "done", "retry", "dead", "cancelled", "broken"
RETRY_SECONDS = 0.2
MOST_OF_AN_ERROR = 300

_number = itertools.count(1)


class Trouble(Exception):
    """A failure that passes."""


class Poison(Exception):
    """A failure that does not."""


class UntilItWorks:
    """A retry strategy: poison is given up after some attempts, anything else is tried for ever."""

    def get_next_attempt_delay(
        self,
        *,
        first_attempt_at: datetime,
        last_attempt_at: datetime,
        attempts_count: int,
        exception: BaseException | None = None,
    ) -> float | None:
        if isinstance(exception, Poison) and attempts_count >= MOST_ATTEMPTS:
            return None
        return RETRY_SECONDS


def started(pen: Pen, place: str, body: Mapping[str, Any], claim: Any) -> int:
    """Tell that a handler begins with a message; the number of the run."""
    run = next(_number)
    token = getattr(claim, "acquired_token", None)
    pen.write(
        STARTED,
        run=run,
        id=body["id"],
        place=place,
        key=body["key"],
        version=body["version"],
        attempt=claim.attempts_count + 1,
        token=None if token is None else str(token),
    )
    return run


def finished(pen: Pen, place: str, run: int, outcome: str, error: BaseException | None = None) -> None:
    """Tell what a handler has come to, and what broke it."""
    said = {} if error is None else {"error": f"{type(error).__name__}: {error}"[:MOST_OF_AN_ERROR]}
    pen.write(FINISHED, run=run, place=place, outcome=outcome, **said)


def verdict(body: Mapping[str, Any], attempt: int) -> str:
    """What becomes of a message at its n-th attempt."""
    if body["poison"]:
        return DEAD if attempt >= MOST_ATTEMPTS else RETRY
    return RETRY if attempt <= body["fails"] else DONE


@asynccontextmanager
async def run(pen: Pen, place: str, body: Mapping[str, Any], claim: Any) -> AsyncIterator[None]:
    """Tell the history of a run; do what the message asks for after the block."""
    number = started(pen, place, body, claim)
    outcome, broken = BROKEN, None
    try:
        yield
        await asyncio.sleep(body["seconds"])
        outcome = verdict(body, claim.attempts_count + 1)
        if body["poison"]:
            raise Poison(f"poison {body['id']}")
        if outcome == RETRY:
            raise Trouble(f"trouble {body['id']}")
    except asyncio.CancelledError:
        outcome = CANCELLED
        raise
    except (Poison, Trouble):
        raise
    except Exception as error:
        broken = error
        raise
    finally:
        # Before the outcome is written: after that, another worker may begin with the next of the key.
        finished(pen, place, number, outcome, broken)


async def effect(session: AsyncSession, place: str, body: Mapping[str, Any], pid: int, delivery: Any = None) -> None:
    """Write an effect, with the place in the topic of a delivery; nothing in the table keeps a second one out."""
    await session.execute(
        text(
            "insert into effects (place, message_id, key, version, pid, tick, position)"
            " values (:place, cast(:id as uuid), :key, :version, :pid, :tick, :position)"
        ),
        {
            "place": place,
            "id": body["id"],
            "key": body["key"],
            "version": body["version"],
            "pid": pid,
            "tick": None if delivery is None else delivery.tick,
            "position": None if delivery is None else delivery.position,
        },
    )
