"""The disk under the outbox is full: whatever needs a new page of the table fails, until there is room again.

The table is moved to a tablespace of its own inside the primary's directory, where a small file system is mounted;
the standby keeps the same tablespace on its ordinary disk. Then the file system is filled, for seconds. At the end
the table goes back, and the file system away.
"""

import asyncio
import contextlib
import os
import pwd
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import psycopg

from faststream_outbox._internal.testing.programs import server_account
from tests.faults.machine.strikes.strike import PRIMARY, TABLE, Cast, NotHere, Strike, linger
from tests.faults.machine.world import OUTBOX, World

SPACE = "small"
ROOM = 16 << 20
"""Bytes that the file system has beside what the table needs at first."""
TRIES = 20


class DiskFull(Strike):
    """No room for another page of the outbox."""

    kind = "disk full"
    takes = frozenset({PRIMARY, TABLE})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        account = server_account()
        if account is None or shutil.which("mount") is None:
            raise NotHere("only root may mount a small file system")
        if not await world.has(OUTBOX):
            raise NotHere(f"no table {OUTBOX}")
        async with small_space(world, account) as path:
            with world.fault(self.kind, f"under {OUTBOX}"):
                try:
                    await _move(world, SPACE)
                    ballast = path / "ballast"
                    try:
                        await asyncio.to_thread(fill, ballast)
                        await linger(chance, 1.0, 4.0)
                    finally:
                        ballast.unlink(missing_ok=True)
                finally:
                    await _move(world, "pg_default")


@asynccontextmanager
async def small_space(world: World, account: pwd.struct_passwd) -> AsyncIterator[Path]:
    """A tablespace with little room, for the length of the block."""
    await world.ask(f"create tablespace {SPACE} location ''")
    try:
        (oid,) = (await world.ask("select oid from pg_tablespace where spcname = %s", SPACE))[0]
        (size,) = (await world.ask("select pg_total_relation_size(%s)", OUTBOX))[0]
        place = world.pair.primary.data / "pg_tblspc" / str(oid)
        (versioned,) = list(place.iterdir())
        options = f"size={size + ROOM},uid={account.pw_uid},gid={account.pw_gid},mode=700"
        await _run("mount", "-t", "tmpfs", "-o", options, "outbox-small", str(versioned))
        try:
            yield versioned
        finally:
            # Lazily: sessions may have a file open that they no longer need.
            await _run("umount", "--lazy", str(versioned))
    finally:
        await _repeat(world, f"drop tablespace {SPACE}")


def fill(ballast: Path) -> None:
    """Write until there is no room."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while True:
                    file.write(os.urandom(size))


async def _run(*command: str) -> None:
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotHere(f"{' '.join(command[:3])}: {done.stderr.strip()}")


async def _move(world: World, space: str) -> None:
    await _repeat(world, f"set lock_timeout = '1s'; alter table {OUTBOX} set tablespace {space}")


async def _repeat(world: World, statement: str) -> None:
    """Until it works: locks of others are in the way, and files that the next checkpoint removes."""
    for left in reversed(range(TRIES)):
        try:
            await world.ask(statement)
        except (psycopg.OperationalError, psycopg.errors.ObjectNotInPrerequisiteState):
            if not left:
                raise
            await asyncio.sleep(0.1)
        else:
            return
