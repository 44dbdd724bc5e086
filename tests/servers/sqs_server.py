"""SQS, played by moto's server in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.servers.missing import missing

SETTINGS = {"region_name": "eu-central-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}


@contextmanager
def sqs_server() -> Iterator[str]:
    """The address of a server."""
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        missing("no SQS: pip install 'moto[server]'")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def take_all(queue: str) -> list[Any]:
    """Take all messages out of a queue, in order.

    Not by the API: for each message that comes, moto looks at all that are there several times, so a queue must be
    emptied faster than it is filled.
    """
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.sqs.models import sqs_backends

    found = sqs_backends[DEFAULT_ACCOUNT_ID][SETTINGS["region_name"]].queues[queue]
    with found._messages_lock:
        messages, found._messages = found._messages, []
    return messages
