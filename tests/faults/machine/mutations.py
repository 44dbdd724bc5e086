"""Faults of the package, made on purpose: each takes one guard away, and the checker must see what comes of it.

`OUTBOX_MUTATION=<name>` applies one in every child of the machine. A mutation changes a statement or replaces a
function; `apply` fails if there is nothing to change any more, so that a mutation cannot become harmless unseen.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faststream_outbox._internal.sql import statements as package_sql

Source = Mapping[str, tuple[str, str]]


class NothingToChange(Exception):
    """The package no longer has what this mutation changes."""


def _rewritten(file: str, names: Sequence[str], *changes: tuple[str, str]) -> None:
    """Change the text of statements in one file, before they are first used."""
    source: Callable[[str], Source] = package_sql._source

    def changed(name: str) -> Source:
        found = dict(source(name))
        if name == file:
            for statement in names:
                description, body = found[statement]
                for old, new in changes:
                    if old not in body:
                        raise NothingToChange(f"{statement} of {file}.sql has no {old!r}")
                    body = body.replace(old, new)
                found[statement] = (description, body)
        return found

    changed(file)
    package_sql._source = changed  # type: ignore[assignment]


def settle_without_token() -> None:
    """Whoever settles need not hold the lease."""
    _rewritten(
        "settle",
        ["settle_done"],
        ("where o.id = d.id and o.acquired_token = d.token", "where o.id = d.id and d.token is not null"),
        ("and acquired_token = any (:tokens::uuid[])", "and :tokens::uuid[] is not null"),
    )


def no_renewal() -> None:
    """A lease ends although its handler runs."""
    from faststream_outbox._internal.queue.renewer import Renewer

    async def never(_: Renewer) -> None:
        await asyncio.Event().wait()

    Renewer.run = never  # type: ignore[method-assign]


def bound_without_transactions() -> None:
    """A gap is forgotten although the transaction that drew its number runs."""
    _rewritten(
        "tick",
        ["tick"],
        ("greatest(pg_snapshot_xmin(pg_current_snapshot())", "greatest(pg_snapshot_xmax(pg_current_snapshot())"),
    )


def no_grace() -> None:
    """A claim starts where the last one ended, although publishers overlap."""
    from faststream_outbox._internal.queue import lanes

    if not lanes.GRACE:
        raise NothingToChange("lanes have no GRACE")
    lanes.GRACE = 0.0


def position_without_epoch() -> None:
    """A member moves a cursor that is another's by now."""
    _rewritten(
        "group",
        ["advance", "move"],
        ("and o.owner = :me::uuid", "and :me::uuid is not null"),
    )
    for name, letter in (("advance", "a"), ("move", "u")):
        _rewritten("group", [name], (f"on o.lo = {letter}.lo and o.epoch = {letter}.epoch", f"on o.lo = {letter}.lo"))


def settled_before_confirm() -> None:
    """The relay settles what it has only begun to send."""
    from faststream_outbox._internal.outcomes.outcome import DONE, Outcome
    from faststream_outbox._internal.relay.line import Line

    handle = Line.handle
    sending: set[asyncio.Task[Any]] = set()

    async def handle_later(line: Line, claims: Sequence[Any]) -> list[Outcome]:
        sending.add(asyncio.create_task(handle(line, claims)))
        return [DONE] * len(claims)

    Line.handle = handle_later  # type: ignore[method-assign]


MUTATIONS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        settle_without_token,
        no_renewal,
        bound_without_transactions,
        no_grace,
        position_without_epoch,
        settled_before_confirm,
    )
}


def apply(name: str) -> None:
    """Break the package of this process in this way."""
    MUTATIONS[name]()
