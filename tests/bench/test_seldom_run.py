"""The benchmarks that nobody runs often run at all, on small tables and to the end; and what they found still holds."""

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from bench.large_tables import large_stage
from bench.peer import peers
from bench.questions import PAGE, QUESTIONS, fill, loaded, over, timed
from bench.rolling import NEW, OLD, Done, Story, roll
from bench.stage import SETTINGS
from bench.ten_million import CASES, cases_of, compared
from faststream_outbox.testing.postgres import PostgresServer

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "last"),
    [
        ("log --rounds 1 --scale 0.01", "load of the machine before"),
        ("held_snapshot_log --ticks 50 --gaps 100", "100 gaps, publisher: the message after its end"),
        ("log_maintenance --rounds 1 --scale 0.003", "| seek |"),
        ("partitions --rounds 1 --few 2 --many 4 --rows 1500", "drop a partition of 1,500:"),
    ],
    ids=lambda value: value.split()[0],
)
def test_it_comes_to_its_end(command: str, last: str) -> None:
    module, *arguments = command.split()
    run = subprocess.run(
        [sys.executable, "-m", f"bench.{module}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert last in run.stdout.splitlines()[-1]


FEW = 5000


@pytest.mark.slow
async def test_each_question_is_answered_by_its_call(capsys: pytest.CaptureFixture[str]) -> None:
    async with large_stage() as stage:
        metadata, log = await fill(stage, FEW)
        capsys.readouterr()
        engine = create_async_engine(stage.server.dsn())
        overview = over(engine, metadata, log)
        for question in QUESTIONS:
            assert await timed(question, overview)
        await overview.close()
        await engine.dispose()
    assert capsys.readouterr().out == "", "a question took too long"


def test_page_shows_the_run_that_was_kept() -> None:
    assert "\n".join(loaded()) in PAGE.read_text()


SMALL, LARGE = 3000, 60_000

MOST = 1.6
"""An index of the larger size has one level more, which some statements pass through more than once. What reads the
rows themselves would cost twenty times as much."""


@pytest.mark.slow
async def test_cost_of_a_message_does_not_grow_with_the_table() -> None:
    parts = list(CASES)
    async with large_stage() as stage:
        sizes = {
            name: await stage.filled(name, rows, set(parts)) for name, rows in (("small", SMALL), ("large", LARGE))
        }
        found = await compared(stage, sizes, cases_of(parts), rounds=1)
    labels = list(cases_of(parts))
    assert len(found) == 2 * len(labels)
    # A message that comes again writes nothing at all.
    grown = {
        (label, figure): getattr(found[label, "large"][0], figure) / (getattr(found[label, "small"][0], figure) or 1)
        for label in labels
        for figure in ("pages", "wal")
    }
    assert {case: ratio for case, ratio in grown.items() if ratio >= MOST} == {}


def test_an_account_tells_what_is_lost_doubled_and_unknown() -> None:
    story = Story()
    story.phases = [("one", 0.0), ("other", 10.0)]
    story.published = [Done(OLD, "a", 1.0, 0.5), Done(NEW, "b", 11.0, 0.2), Done(NEW, "c", 12.0, 0.3)]
    story.handled = [Done(NEW, "a", 2.0, 1.0), Done(OLD, "a", 12.0, 3.0), Done(OLD, "x", 13.0, 1.0)]
    assert story.account() == {"sent": 3, "handled": 2, "lost": 2, "doubled": 1, "unknown": 1}
    assert story.lines()[-2:] == ["| one | 1: 500 |  |  | 1: 1000, 1000 |", "| other |  | 2: 300 | 2: 2000, 3000 |  |"]


@pytest.mark.soak
def test_a_rolling_deploy_loses_nothing() -> None:
    try:
        peers()["outbox19"].python()
    except subprocess.CalledProcessError:
        pytest.skip("faststream-outbox 0.19 cannot be installed: PyPI is out of reach")
    with PostgresServer.start(settings=SETTINGS) as server:
        story = roll(server, rows=50_000, seconds=4.0)
    print("\n".join(story.lines()))
    account = story.account()
    assert account["sent"] == account["handled"] > 1000
    assert (account["lost"], account["unknown"]) == (0, 0)
