"""Run a module as `python -m` does, but not for longer than whoever started it.

`python -m examples.demo.tether faststream run examples.shop.worker:app`. The end of standard input, which
comes when the other end closes it or dies in whatever way, is a SIGTERM; what has not ended five seconds later
is killed.
"""

import os
import runpy
import signal
import sys
import threading
import time

SECONDS_TO_END = 5.0


def hold() -> None:
    """Wait for the end of standard input, and end with it."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SECONDS_TO_END)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=hold, daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
