"""Makes the process stand still once in each test, at a moment by chance, as a busy machine does.

`make test-fast ARGS="-p tests.pausing"` finds tests that depend on time. `PAUSE_SECONDS` says for how long, and
`PAUSE_SEED` chooses the moments, which are the same in every run. Tests that are over before theirs see no pause.
"""

import os
import signal
import threading
import time
from collections.abc import Generator
from random import Random

import pytest

SECONDS = float(os.environ.get("PAUSE_SECONDS", "2"))
SEED = os.environ.get("PAUSE_SEED", "1")
EARLIEST, LATEST = -2.3, 0.5
"""Powers of ten, in seconds: as many moments lie below a tenth of a second as above."""


def pytest_configure() -> None:
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    after = 10 ** Random(SEED + item.nodeid).uniform(EARLIEST, LATEST)
    pause = threading.Timer(after, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    pause.start()
    try:
        yield
    finally:
        pause.cancel()
