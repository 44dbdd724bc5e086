"""A process that tells of itself: `python -m tests.faults.telling_child <exit code>`, as soon as it is told to stop."""

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path


async def main(code: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_reader(sys.stdin.fileno(), lambda: os._exit(1))
    told = {
        "argv": sys.argv[1:],
        "cwd": str(Path.cwd()),
        "given": os.environ.get("GIVEN"),
        "threads": threading.active_count(),
    }
    print(json.dumps(told), flush=True)
    print("complaint", file=sys.stderr, flush=True)
    await ended.wait()
    sys.exit(code)


if __name__ == "__main__":
    imported = sorted(sys.modules)
    print(json.dumps(imported), flush=True)
    asyncio.run(main(int(sys.argv[1])))
