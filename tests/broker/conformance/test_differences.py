"""The documentation of the test broker lists the differences that scenarios show, and no others."""

import re
from pathlib import Path

import pytest
from sqlalchemy import text

from faststream_outbox import OutboxBroker
from faststream_outbox.annotations import OutboxSession
from tests.broker.conformance.differences import ALL_DIFFERENCES, ANSWERED, NOT_WRITTEN, differs
from tests.broker.conformance.ways import Way, answering
from tests.cases import each

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "testing.md"


def test_page_lists_the_differences_that_scenarios_show() -> None:
    listed = re.findall(r"<!-- differences of (memory|both) -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    reported = [(where, line.removeprefix("- ")) for where, lines in listed for line in lines.splitlines()]
    known = [("memory" if len(each.ways) == 1 else "both", each.said) for each in ALL_DIFFERENCES.values()]
    assert sorted(reported) == sorted(known)


@each("name", ALL_DIFFERENCES)
def test_scenario_shows_the_difference(name: str) -> None:
    marked = [path.name for path in HERE.glob("test_*.py") if f"@differs({name})" in path.read_text()]
    assert marked


@differs(NOT_WRITTEN)
async def test_session_of_a_handler_writes(way: Way, broker: OutboxBroker) -> None:
    read: list[object] = []

    @broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> None:
        read.append((await session.execute(text("select 7"))).scalar_one())

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.eventually(lambda: read == [7])


@differs(ANSWERED)
async def test_request_is_refused(way: Way, broker: OutboxBroker) -> None:
    answering(broker)
    async with way.running(broker):
        with pytest.raises(Exception, match="cannot answer a request"):
            await broker.request(1, "orders")
