"""Relay to SQS: attributes, FIFO groups, bodies that are no text, and fates of single entries."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiobotocore.session import get_session

from faststream_outbox.events import Died, RelayDown, RelayUp
from faststream_outbox.relay.sqs import SqsTransport
from tests.broker.topics.stage import Stage
from tests.relay.publishing import is_empty, own_id, publish
from tests.servers.sqs_server import SETTINGS
from tests.waiting import eventually


@pytest.fixture
async def sqs(sqs_url: str) -> AsyncIterator[Any]:
    async with get_session().create_client("sqs", endpoint_url=sqs_url, **SETTINGS) as client:
        yield client


async def make_queue(sqs: Any, name: str) -> str:
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    return str((await sqs.create_queue(QueueName=name, Attributes=attributes))["QueueUrl"])


async def read(sqs: Any, url: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def so_many() -> bool:
        answer = await sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        )
        for message in answer.get("Messages", ()):
            found.append(message)
            await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return len(found) >= count

    await eventually(so_many)
    return found


async def test_everything_is_in_its_place(stage: Stage, sqs: Any, sqs_url: str) -> None:
    url = await make_queue(sqs, "orders")
    stage.broker.relay("orders", to=SqsTransport(url, endpoint_url=sqs_url, **SETTINGS))
    await publish(stage, {"id": 1}, correlation_id="cor-1", headers={"traceparent": "00-1-2-01", "tenant": 7})
    message_id = await own_id(stage)
    await stage.broker.start()
    (found,) = await read(sqs, url, 1)
    await is_empty(stage)
    attributes = {name: value["StringValue"] for name, value in found["MessageAttributes"].items()}
    assert found["Body"] == '{"id":1}'
    assert attributes == {
        "message_id": message_id,
        "correlation_id": "cor-1",
        "content-type": "application/json",
        "traceparent": "00-1-2-01",
        "tenant": "7",
    }


async def test_a_fifo_queue_has_groups_and_keeps_their_order(stage: Stage, sqs: Any, sqs_url: str) -> None:
    url = await make_queue(sqs, "orders.fifo")
    stage.broker.relay("orders", to=SqsTransport(url, endpoint_url=sqs_url, **SETTINGS))
    for number in range(25):
        await publish(stage, number, key=None if number == 24 else str(number % 3))
    await stage.broker.start()
    found = await read(sqs, url, 25)
    groups: dict[str, list[int]] = {}
    for message in found:
        groups.setdefault(message["Attributes"]["MessageGroupId"], []).append(int(message["Body"]))
    assert [groups[str(key)] for key in range(3)] == [[*range(key, 24, 3)] for key in range(3)]
    assert len(groups) == 4


async def test_what_is_no_text_goes_as_base64(stage: Stage, sqs: Any, sqs_url: str) -> None:
    url = await make_queue(sqs, "bytes")
    stage.broker.relay("orders", to=SqsTransport(url, endpoint_url=sqs_url, **SETTINGS))
    await publish(stage, b"\x00\xff")
    await stage.broker.start()
    (found,) = await read(sqs, url, 1)
    assert base64.b64decode(found["Body"]) == b"\x00\xff"
    assert found["MessageAttributes"]["content-encoding"]["StringValue"] == "base64"


async def test_what_is_too_large_is_a_dead_letter_and_others_pass(stage: Stage, sqs: Any, sqs_url: str) -> None:
    url = await make_queue(sqs, "large")
    stage.broker.relay("orders", to=SqsTransport(url, endpoint_url=sqs_url, **SETTINGS))
    await publish(stage, "x" * 300_000, *["y" * 100_000] * 5)
    await stage.broker.start()
    died = await stage.witness.wait(Died)
    await read(sqs, url, 5)
    assert "more than the 262144" in str(died.error)


async def test_entries_have_fates_of_their_own(stage: Stage) -> None:
    transport = SqsTransport("http://localhost/orders", **SETTINGS)
    stage.broker.relay("orders", to=transport)

    class Client:
        async def send_message_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
            fates = {"2": ("InvalidMessageContents", True), "3": ("InternalError", False)}
            bodies = {entry["Id"]: entry["MessageBody"] for entry in Entries}
            taken.extend(body for body in bodies.values() if body not in fates)
            failed = [(id_, *fates[body]) for id_, body in bodies.items() if body in fates]
            return {"Failed": [{"Id": id_, "Code": code, "SenderFault": ours} for id_, code, ours in failed]}

    taken: list[str] = []
    await publish(stage, 1, 2, 3)
    await stage.broker.start()
    transport._client = Client()
    died = await stage.witness.wait(Died)
    assert "InvalidMessageContents" in str(died.error)
    await eventually(lambda: taken == ["1"])
    await stage.broker.stop()
    (row,) = await stage.sql(f"select payload, attempts_count, deliveries_count from {stage.table.name}")
    assert dict(row) == {"payload": b"3", "attempts_count": 0, "deliveries_count": 0}


async def test_a_server_that_is_not_there_is_waited_for(stage: Stage, sqs: Any, sqs_url: str) -> None:
    url = await make_queue(sqs, "later")
    transport = SqsTransport(url, endpoint_url="http://127.0.0.1:1", **SETTINGS)
    stage.broker.relay("orders", to=transport)
    await publish(stage, 1)
    await stage.broker.start()
    await stage.witness.wait(RelayDown)
    transport._client = sqs
    await stage.witness.wait(RelayUp)
    await read(sqs, url, 1)
