"""`python -m bench.questions`: how long each question of an operator takes, as a call and as a command.

At ten million messages in 500 queues (half of them in one queue), a million dead letters, and ten million messages of a
topic that a group has not read. `--rows 100000` is a quick try; `--write` puts the figures into `docs/overview.md`.
The tables have their default names, so that the commands find them as they would find yours.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from bench.large_tables import LOG, PORTION, LargeStage, large_stage, reported
from bench.page import REPORT, put
from bench.peer import ROOT
from faststream_outbox._internal.cli.exits import Exit
from faststream_outbox.errors import QuestionTimedOut
from faststream_outbox.log import LogTables, Outbox, make_log_tables
from faststream_outbox.overview import Overview
from faststream_outbox.queue import Selection
from faststream_outbox.schema import make_dlq_table, make_outbox_table

QUEUES, KEYS, DEAD_SHARE = 500, 10_000, 10
BEHIND, AHEAD = "behind", "ahead"
TIMES = 5
TIMEOUT = 60.0
"""Seconds for one question: what takes longer than the usual 5 shall be seen."""
PAGE = ROOT / "docs" / "overview.md"
NOWHERE = UUID("00000000-0000-4000-8000-00000000dead")

_QUEUE = """
    insert into outbox (queue, payload, headers, key, timer_id, next_attempt_at, acquired_token, acquired_at)
    select case when i % 2 = 0 then 'queue-0' else 'queue-' || i / 2 % {queues} end,
           '{{"order_id": 12345, "amount": 99.5}}', '{{"content-type": "application/json"}}',
           case when i % 10 = 1 then 'key-' || i / 10 % {keys} end,
           case when i % 100 = 3 then 'timer-' || i end,
           now() + case when i % 20 = 3 then interval '1 day' else interval '-1 hour' end,
           case when i % 10000 = 5 then gen_random_uuid() end, case when i % 10000 = 5 then now() end
    from generate_series({first}, {last}) i
"""
_DEAD = """
    insert into outbox_dlq (original_id, message_id, queue, payload, priority, created_at, failure_reason, error_type)
    select i, gen_random_uuid(), 'queue-' || i % {queues}, '{{"order_id": 12345, "amount": 99.5}}', 0, now(),
           'retry_terminal', 'Error' || i % 50
    from generate_series({first}, {last}) i
"""


@dataclass(frozen=True, slots=True)
class Question:
    """One question as a call and as a command."""

    label: str
    call: str
    ask: Callable[[Overview], Awaitable[object]]
    command: Sequence[str]


@dataclass(frozen=True, slots=True)
class Answered:
    """Milliseconds of a question: of the call the median and the longest of five, of the command its whole process."""

    label: str
    call: str
    command: str
    median: float
    longest: float
    process: float


QUESTIONS = (
    Question("every queue: ready, scheduled, leased, dead, age", "queues()", lambda o: o.queues(), ["queues"]),
    Question("one queue of ten", 'queues("queue-7")', lambda o: o.queues("queue-7"), ["queues", "queue-7"]),
    Question("rows in and out per second", "rates()", lambda o: o.rates(), ["status"]),
    Question("a message by its id", "message(4711)", lambda o: o.message(4711), ["show", "4711"]),
    Question("a message_id that nobody has", "message(UUID(…))", lambda o: o.message(NOWHERE), ["show", str(NOWHERE)]),
    Question("the next timers", "timers()", lambda o: o.timers(), ["timers", "list"]),
    Question("dead letters by queue and error", "dead_groups()", lambda o: o.dead_groups(), ["dead", "groups"]),
    Question(
        "dead letters of a queue",
        'dead_letters(Selection(queue="queue-7"))',
        lambda o: o.dead_letters(Selection(queue="queue-7")),
        ["dead", "list", "--queue", "queue-7"],
    ),
    Question("who works here", "processes()", lambda o: o.processes(), ["workers"]),
    Question("every group: lag in messages and seconds", "groups()", lambda o: o.groups(), ["groups", "list"]),
    Question("a group by slots", f'slots("{BEHIND}")', lambda o: o.slots(BEHIND), ["groups", "lag", BEHIND]),
    Question("keys that wait", "blocked_keys()", lambda o: o.blocked_keys(), ["parked", "list", BEHIND]),
    Question("open gaps and whose they are", "gaps()", lambda o: o.gaps(), ["doctor"]),
)


async def fill(stage: LargeStage, rows: int) -> tuple[MetaData, LogTables]:
    """Everything that is asked about."""
    metadata = MetaData()
    queue, dead = make_outbox_table(metadata), make_dlq_table(metadata)
    log = make_log_tables(metadata, "outbox_log")
    async with stage.engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    places = {"queues": QUEUES, "keys": KEYS}
    await stage.fill(queue, _QUEUE, rows, places)
    await stage.fill(dead, _DEAD, rows // DEAD_SHARE, places)
    async with Outbox(stage.engine, tables=log) as outbox, stage.engine.begin() as connection:
        await outbox.seek(connection, "earliest", BEHIND, create=True)
    await stage.fill(log.log, LOG, rows, {"keys": KEYS, "oldest": 0, "slice": PORTION})
    began = time.perf_counter()
    async with Outbox(stage.engine, tables=log) as outbox, stage.engine.begin() as connection:
        await outbox.seek(connection, "latest", AHEAD, create=True)
    await stage.settled(log.ticks.name)
    reported("sequenced", began)
    return metadata, log


async def timed(question: Question, overview: Overview) -> list[float]:
    """Milliseconds of some calls."""
    taken: list[float] = []
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        try:
            await question.ask(overview)
        except QuestionTimedOut as error:
            print(f"{question.label}: {error}")
        taken.append((time.perf_counter() - began) * 1e3)
    # The first is not counted: it opens the connection, and reads from disk what the others find in memory.
    return taken[1:]


def run(question: Question, dsn: str) -> float:
    """Milliseconds of the command's process."""
    environment = {**os.environ, "OUTBOX_DSN": dsn}
    command = [sys.executable, "-m", "faststream_outbox", *question.command, "--timeout", f"{TIMEOUT:g}s", "--json"]
    began = time.perf_counter()
    ended = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    if ended.returncode not in {Exit.FINE, Exit.WRONG, Exit.NOTHING}:
        print(f"{' '.join(command)} ended with {ended.returncode}")
    return (time.perf_counter() - began) * 1e3


def lines(found: Sequence[Answered], rows: int) -> list[str]:
    """The figures as a table."""
    head = [
        f"{rows:,} messages in {QUEUES} queues, {rows // DEAD_SHARE:,} dead letters, and {rows:,} messages of a topic "
        "that a group has not read. Milliseconds, of five calls. Of a command's process, most is its start.",
        "",
        "| question | call | median | longest | command | its process |",
        "|---|---|---|---|---|---|",
    ]
    for one in found:
        figures = f"{one.median:,.0f} | {one.longest:,.0f} | `{one.command}` | {one.process:,.0f}"
        head.append(f"| {one.label} | `{one.call}` | {figures} |")
    return head


def loaded() -> list[str]:
    """The table of the run that was written down last."""
    saved = json.loads((REPORT / "questions.json").read_text())
    return lines([Answered(**one) for one in saved["questions"]], saved["rows"])


def over(engine: AsyncEngine, metadata: MetaData, log: LogTables) -> Overview:
    """Who is asked."""
    tables = metadata.tables
    return Overview(engine, table=tables["outbox"], dlq_table=tables["outbox_dlq"], log_tables=log, timeout=TIMEOUT)


async def main() -> None:
    """Fill, ask, print."""
    options = argparse.ArgumentParser(prog="bench.questions")
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--write", action="store_true", help="put the figures into docs/overview.md")
    chosen = options.parse_args()
    async with large_stage() as stage:
        metadata, log = await fill(stage, chosen.rows)
        engine = create_async_engine(stage.server.dsn())
        overview = over(engine, metadata, log)
        found: list[Answered] = []
        for question in QUESTIONS:
            taken = await timed(question, overview)
            process = await asyncio.to_thread(run, question, stage.server.dsn())
            figures = (statistics.median(taken), max(taken), process)
            found.append(Answered(question.label, question.call, " ".join(question.command), *figures))
        await overview.close()
        await engine.dispose()
    table = lines(found, chosen.rows)
    print("\n".join(table))
    if chosen.write:
        saved = {"rows": chosen.rows, "questions": [asdict(one) for one in found]}
        (REPORT / "questions.json").write_text(json.dumps(saved, indent=1) + "\n")
        put(PAGE, "questions", table)


if __name__ == "__main__":
    asyncio.run(main())
