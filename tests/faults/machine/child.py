"""A process of the machine: `python -m tests.faults.machine.child '<Part as JSON>'`.

Plays its role until SIGTERM, and ends at once when its standard input ends, so that it outlives no run. Says in its
history what it has open at its beginning and at its end, and now and then how large it is and whether it was awake.
`OUTBOX_MUTATION` names a patch of `mutations` that breaks the package on purpose.
"""

import asyncio
import gc
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from faststream_outbox._internal.connections.opening import PATIENCE
from tests.faults import child
from tests.faults.machine.history import BEAT, BORN, ENDED, READY, Pen
from tests.faults.machine.part import (
    CONSUMER,
    MEMBER,
    PRODUCER,
    RELAY,
    REVIVED_WORKER,
    SOUGHT_MEMBER,
    TRANSACTIONAL_MEMBER,
    TRANSACTIONAL_WORKER,
    WORKER,
    Part,
)

MUTATION = "OUTBOX_MUTATION"
BEAT_SECONDS = 0.25
SETTLING_SECONDS = PATIENCE + 2.0
"""How long what was stopped may take to be gone."""

PLAYED_BY = {
    PRODUCER: ("producer", "Producer"),
    WORKER: ("worker", "Worker"),
    TRANSACTIONAL_WORKER: ("worker", "TransactionalWorker"),
    REVIVED_WORKER: ("worker", "RevivedWorker"),
    MEMBER: ("member", "Member"),
    TRANSACTIONAL_MEMBER: ("member", "TransactionalMember"),
    SOUGHT_MEMBER: ("member", "SoughtMember"),
    RELAY: ("relay", "Relay"),
    CONSUMER: ("consumer", "Consumer"),
}


def size() -> int:
    """Kilobytes of memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def open_things() -> dict[str, Any]:
    """Tasks, and where file descriptors lead to."""
    files: list[str] = []
    for number in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink(f"/proc/self/fd/{number}").split(":[")[0])
        except OSError:
            # The one that listed them.
            continue
    tasks = [task.get_coro() for task in asyncio.all_tasks()]
    return {"files": sorted(files), "tasks": sorted(getattr(coro, "__qualname__", str(coro)) for coro in tasks)}


async def beat(pen: Pen) -> None:
    """Say now and then that this process is awake, and how large."""
    while True:
        pen.write(BEAT, kb=size())
        await asyncio.sleep(BEAT_SECONDS)


async def main(part: Part) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_reader(sys.stdin.fileno(), lambda: os._exit(1))
    module, name = PLAYED_BY[part.role]
    made = getattr(importlib.import_module(f"tests.faults.machine.roles.{module}"), name)
    if mutation := os.environ.get(MUTATION):
        from tests.faults.machine.mutations import apply

        apply(mutation)
    pen = Pen(part.history, part.role)
    before = open_things()
    pen.write(BORN, driver=part.driver, pooled=part.pooled is not None, **before)
    child.say(child.READY)
    beating = asyncio.create_task(beat(pen))
    role = made(part, pen)
    starting = asyncio.create_task(role.start())
    stopping = asyncio.create_task(ended.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # Told to stop before it could start, as when nothing answers.
        starting.cancel()
    await asyncio.wait([starting])
    if not starting.cancelled() and (error := starting.exception()) is not None:
        raise error
    if not starting.cancelled():
        pen.write(READY)
    await stopping
    await role.stop()
    beating.cancel()
    await asyncio.wait([beating])
    del role, starting, stopping, beating
    gc.collect()
    until = loop.time() + SETTLING_SECONDS
    while (after := open_things()) != before and loop.time() < until:
        await asyncio.sleep(0.05)
        gc.collect()
    pen.write(ENDED, **after)


if __name__ == "__main__":
    asyncio.run(main(Part.from_json(sys.argv[1])))
