"""A process that tells of itself: `python -m tests.faults.telling_child <exit code>`.

Ends with that code on SIGTERM, and at once when its standard input ends.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path

from tests.faults.child import say


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
        "imported": sorted(sys.modules),
    }
    sys.stderr.write("complaint\n")
    say(json.dumps(told))
    await ended.wait()
    sys.exit(code)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
