"""Renewing: the leases and memberships of all members of a process, by one statement each.

Also asks who else lives, what a dead member left and what an operator changed: two questions about all groups, and
only a member that has something to do about the answers is woken. Run by the client, a few times in the life of a
lease.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.member import Member
from faststream_outbox._internal.log.sharing.leases import SlotLeases
from faststream_outbox._internal.log.sharing.slots import Cursor, Group, SeenSpan, Span, fair_plan, fixed_plan, joinable
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.log_rows import Census, MemberBeat, NumberedSpan
from faststream_outbox._internal.sql.statements import column, named, statements

NOTHING = "(0,)"
"""What is deferred, in short, where nothing is."""


async def renew_leases(connection: DedicatedConnection, all_leases: Sequence[SlotLeases]) -> None:
    """Let the leases of some members begin anew, and forget those that are gone."""
    held = [(leases, span) for leases in all_leases for span in leases.spans.values()]
    if not held:
        return
    values: dict[str, Any] = {
        **_columns(leases.group for leases, _ in held),
        "owners": [leases.me for leases, _ in held],
        "los": [span.lo for _, span in held],
        "epochs": [span.epoch for _, span in held],
        "ttls": [leases.lease_seconds for leases, _ in held],
    }
    sql = statements("group", all_leases[0].names)
    kept = set(column(await connection.fetch(sql["renew_each"], values)))
    for number, (leases, span) in enumerate(held, 1):
        if number not in kept:
            leases.lose([span])


async def beat(connection: DedicatedConnection, all_leases: Iterable[SlotLeases]) -> set[UUID]:
    """Say that some members live; those that are new."""
    sharing = [leases for leases in all_leases if leases.fixed is None]
    if not sharing:
        return set()
    values: dict[str, Any] = {
        **_columns(leases.group for leases in sharing),
        "members": [leases.me for leases in sharing],
        "ttls": [leases.lease_seconds for leases in sharing],
    }
    rows = await connection.fetch(statements("group", sharing[0].names)["beat_each"], values)
    return {beat.member for beat in named(MemberBeat, rows) if beat.is_new}


def has_to_arrange(leases: SlotLeases, seen: Sequence[SeenSpan], members: int) -> bool:
    """Whether a member has slots to take, to give or to join, or holds others than it knows of."""
    ours = {each.span.lo: each.span for each in seen if each.owner == leases.me}
    if not seen or leases.spans.keys() != ours.keys() or (leases.fixed is None and leases.members != members):
        return True
    if any((ours[lo].epoch, ours[lo].cursor) != (span.epoch, span.known) for lo, span in leases.spans.items()):
        return True
    fixed = leases.fixed
    plan = fair_plan(seen, leases.me, members) if fixed is None else fixed_plan(seen, leases.me, *fixed)
    return bool(plan.give or plan.take or joinable(leases.spans.values()))


class Renewing:
    """Keeps the members of one process alive, and wakes those that have to arrange themselves anew."""

    def __init__(self, connection: DedicatedConnection, names: LogNames) -> None:
        self._connection = connection
        self._sql = statements("group", names)
        self._paused = statements("group_admin", names)["paused_among"]
        self._changes: Mapping[Group, str] = {}
        """What an operator may change of each group, as it was seen last."""

    async def renew(self, members: Sequence[Member]) -> None:
        """Renew what these hold, and see how their groups are."""
        all_leases = [member.leases for member in members]
        await renew_leases(self._connection, all_leases)
        await beat(self._connection, all_leases)
        await self._heed_pauses([member for member in members if member.leases.is_complete])
        await self._check_groups([member for member in members if not member.leases.is_complete])

    async def _heed_pauses(self, members: Sequence[Member]) -> None:
        """Wake those who have no slots to look for, if an operator has paused their group."""
        groups = list(dict.fromkeys(member.group for member in members))
        if not groups:
            return
        numbers = column(await self._connection.fetch(self._paused, _columns(groups)))
        paused = {groups[number - 1] for number in numbers}
        for member in members:
            if member.group in paused:
                member.unsettle()

    async def _check_groups(self, members: Sequence[Member]) -> None:
        groups = list(dict.fromkeys(member.group for member in members))
        if not groups:
            return
        connection, values = self._connection, _columns(groups)
        seen: dict[Group, list[SeenSpan]] = {group: [] for group in groups}
        for row in named(NumberedSpan, await connection.fetch(self._sql["spans_of_groups"], values)):
            span = Span(row.lo, row.hi, Cursor(row.tick, row.position), row.epoch)
            seen[groups[row.number - 1]].append(SeenSpan(span, row.owner, row.is_free))
        holding = {member.group for member in members if member.blocked.hold}
        asked = {**values, "holds": [group in holding for group in groups]}
        rows = named(Census, await connection.fetch(self._sql["census"], asked))
        found = {groups[row.number - 1]: row for row in rows}
        if any(row.dead for row in rows):
            await connection.fetch(self._sql["forget_dead"], values)
        known, self._changes = self._changes, {group: row.changes for group, row in found.items()}
        for member in members:
            group = member.group
            # Before the first time it is not known what was loaded, unless that was nothing.
            before = known.get(group, None if member.blocked.keys else NOTHING)
            is_changed = before != found[group].changes
            if is_changed or has_to_arrange(member.leases, seen[group], found[group].members):
                member.unsettle()


def _columns(groups: Iterable[Group]) -> dict[str, Any]:
    listed = list(groups)
    return {"groups": [group.name for group in listed], "uris": [group.uri for group in listed]}
