"""A broker of queues and topics without a database."""

import pytest
from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox.log import make_log_tables


@pytest.fixture
def broker() -> OutboxBroker:
    metadata = MetaData()
    outbox, log = make_outbox_table(metadata), make_log_tables(metadata, "outbox_log")
    return OutboxBroker(outbox_table=outbox, dlq_table=None, log_tables=log, logger=None)
