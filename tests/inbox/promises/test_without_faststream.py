"""An inbox can be made and receive in a process that has no FastStream."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
sys.modules["faststream"] = None
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine
from faststream_outbox import Inbox, SyncInbox, make_inbox_table
inbox = Inbox(create_async_engine("postgresql+asyncpg://localhost/app"), make_inbox_table(MetaData()), consumer="a")
inbox.receive("m1", source="orders")
"""


@pytest.mark.slow
def test_inbox_needs_no_faststream() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
