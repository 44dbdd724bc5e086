"""Debian's Chromium, driven by Playwright: no browser is downloaded."""

import shutil
from importlib.util import find_spec

from tests.servers.missing import missing

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Where the browser is; skips the test, or fails it, where it or its driver is not installed."""
    program = next((path for name in PROGRAMS if (path := shutil.which(name)) is not None), None)
    if program is None:
        missing("no browser: apt-get install chromium")
    if find_spec("playwright") is None:
        missing("no driver for the browser: pip install playwright")
    return program
