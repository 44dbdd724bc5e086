"""A message costs no more statements, WAL, index writes, row locks and Python calls than the baseline allows.

All of it is counted, none of it timed, so that the answer is the same on a busy machine. When a change is meant to
cost more: `python -m bench.budgets --write`, and the reason in its description.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import text

from bench.budgets import CASES, SETTINGS, Case, Cost, Ledger, allowed, ledger, measured
from faststream_outbox.testing.postgres import PostgresServer
from tests.cases import each

pytestmark = pytest.mark.slow

DRAIN = "drain, engine, claims of 100"
PUBLISH = "publish, one a transaction"


@pytest.fixture(scope="module")
def counting_server() -> Iterator[PostgresServer]:
    """A server of its own: WAL and log belong to a whole server."""
    with PostgresServer.start(settings=SETTINGS) as server:
        yield server


@pytest.fixture
async def made(counting_server: PostgresServer) -> AsyncIterator[Ledger]:
    async with ledger(counting_server) as made:
        yield made


@pytest.mark.parametrize("name", CASES)
async def test_message_stays_within_its_budget(made: Ledger, name: str) -> None:
    cost = await measured(made, CASES[name])
    print(cost)
    assert cost.over(allowed()[name]) == []


def test_every_case_has_a_budget_and_every_budget_a_case() -> None:
    assert allowed().keys() == CASES.keys()


async def test_index_on_the_lease_breaks_the_budget_of_a_drain(made: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The design's most expensive mistake: every claim would move its row between index pages."""
    reset = made.reset

    async def with_index() -> None:
        await reset()
        async with made.engine.begin() as connection:
            await connection.execute(text("create index on outbox (queue) where acquired_token is null"))

    monkeypatch.setattr(made, "reset", with_index)
    broken = (await measured(made, replace(CASES[DRAIN], messages=1000))).over(allowed()[DRAIN])
    assert {sentence.split()[0] for sentence in broken} >= {"hot_share", "index_writes", "wal_bytes", "wal_records"}


async def test_one_more_statement_breaks_the_budget_of_a_publish(made: Ledger) -> None:
    async def with_a_question(made: Ledger, messages: int) -> None:
        await CASES[PUBLISH].run(made, messages)
        async with made.engine.connect() as connection:
            for _ in range(messages):
                await connection.execute(text("select 1"))

    broken = (await measured(made, Case(with_a_question, 200))).over(allowed()[PUBLISH])
    assert [sentence.split()[0] for sentence in broken][:1] == ["statements"]


@each("name", Cost.__dataclass_fields__)
def test_each_budget_is_watched(name: str) -> None:
    fine = Cost(**allowed()[DRAIN])
    worse = replace(fine, **{name: getattr(fine, name) + (-0.1 if name == "hot_share" else 0.1)})
    assert fine.over(allowed()[DRAIN]) == []
    assert [sentence.split()[0] for sentence in worse.over(allowed()[DRAIN])] == [name]
