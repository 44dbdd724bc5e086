"""Numbers on the pages are those of the code: each sentence is written here with the constants in their places."""

import json
import tomllib
from typing import Any

from bench.budgets import BASELINE
from faststream_outbox._internal import envelope
from faststream_outbox._internal.connections import dedicated
from faststream_outbox._internal.events import outage as repeats
from faststream_outbox._internal.health import progress, readiness
from faststream_outbox._internal.health.health import TIMEOUT
from faststream_outbox._internal.log.admin import partitions as retention_lock
from faststream_outbox._internal.log.admin import retention
from faststream_outbox._internal.log.options import CRASH_LIMIT
from faststream_outbox._internal.log.ordering import sequencer
from faststream_outbox._internal.log.sharing import slots
from faststream_outbox._internal.metrics.sampler import MOST_NAMES, MOST_VALUES, PATIENCE, TRY_SECONDS
from faststream_outbox._internal.outcomes import failure
from faststream_outbox._internal.overview import overview
from faststream_outbox._internal.overview.queues import MOST
from faststream_outbox._internal.publish import rows
from faststream_outbox._internal.queue import lanes, options, renewer, scanner, settler, worker
from faststream_outbox._internal.queue import plan as claim_plan
from faststream_outbox._internal.relay import gate
from faststream_outbox._internal.schema import log_tables, tables
from faststream_outbox._internal.service import STUCK_SECONDS
from faststream_outbox._internal.wakeup import after_commit, listener, watcher
from faststream_outbox._internal.wakeup import wakeups as notifier
from tests.cases import each
from tests.docs.pages import ROOT, parts, text_of
from tests.docs.pages import rows as rows_of

DEFAULTS = options.WorkerOptions()


def ms(seconds: float) -> str:
    return f"{seconds * 1000:g}"


def by(unit: int, number: float) -> str:
    return f"{number / unit:g}"


LONGEST_LOOK = DEFAULTS.max_fetch_interval * (1 + claim_plan.JITTER)
SHORT_LEASE = 5.0
SHORT_LOOK = SHORT_LEASE / 2 * (1 + claim_plan.JITTER)

SAID: list[tuple[str, str]] = [
    ("publishing", f"One INSERT for up to {rows.MOST_ROWS:,} messages or {by(10**6, rows.MOST_BYTES)} MB"),
    ("publishing", f"More than {by(10**6, envelope.MAX_BODY_BYTES)} million bytes of bodies and headers in one call"),
    ("publishing", f"Headers of more than {envelope.MOST_HEADER_VALUES:,} values"),
    ("publishing", f"an `activate_in` of more than {envelope.MAX_DELAY.days:,} days"),
    ("publishing", f"a number from {envelope.SMALLINT.start} to {envelope.SMALLINT.stop - 1}"),
    ("publishing", f"one of more than {tables.NAME_LENGTH} characters"),
    ("publishing", f"passed over for {'five' if lanes.PATIENCE == 5 else '?'} seconds gets a tenth of the room"),
    ("forwarding", f"takes longer than {'five' if gate.PATIENCE_SECONDS == 5 else '?'} seconds"),
    ("security", f"cut to {failure.MAX_MESSAGE:,} and {failure.MAX_TRACEBACK:,} characters"),
    ("ordered-log", f"have {by(10**6, envelope.MAX_BODY_BYTES)} million bytes together at most"),
    ("ordered-log", f"at most {log_tables.URI_LENGTH} bytes"),
    ("ordered-log", f"one of {slots.SLOTS} partitions"),
    ("groups", f"in slices of {retention.SLICE:,}"),
    ("groups", f"it waits, and after {retention_lock.LONGEST_WAIT:g} seconds it says so"),
    ("ordered-log", f"do not come through in {dedicated.STATEMENT_TIMEOUT:g} seconds"),
    ("ordered-log", f"`crash_limit` ({CRASH_LIMIT}) deaths in a row"),
    ("topics", f"`crash_limit` ({CRASH_LIMIT}) deaths in a row"),
    ("topics", f"taken over; {DEFAULTS.lease_ttl_seconds:g} |"),
    ("topics", f"members of the group in this process, 1 to {slots.SLOTS}"),
    ("how-ordering-works", f"every {ms(sequencer.BUSY_INTERVAL)} ms while there is traffic"),
    ("how-ordering-works", f"every {ms(sequencer.IDLE_INTERVAL)} ms when idle"),
    ("how-ordering-works", f"every {ms(2 * sequencer.IDLE_INTERVAL)} ms while another process ticks"),
    (
        "how-ordering-works",
        f"is looked for every {ms(sequencer.LONGEST_WAIT + 2 * sequencer.IDLE_INTERVAL)} ms at least",
    ),
    ("operations", f"longer than {dedicated.STATEMENT_TIMEOUT:g} seconds is given up"),
    ("operations", f"Scans have {scanner.SCAN_TIMEOUT:g} seconds"),
    ("operations", f"closed after {'five' if notifier.KEEP_SECONDS == 5 else '?'} quiet seconds"),
    ("wakeups", f"every {ms(notifier.INTERVAL)} to {ms(notifier.LONGEST_INTERVAL)} milliseconds"),
    (
        "wakeups",
        f"every {ms(watcher.IDLE_INTERVAL)} milliseconds when all is quiet, every {ms(watcher.SLEEPY_INTERVAL)}",
    ),
    ("wakeups", f"within {'three' if listener.HEARING_TEST == 3 else '?'} seconds"),
    ("wakeups", f"tries again every {'minute' if listener.DEAF_PAUSE == 60 else '?'}"),
    ("wakeups", f"Up to {by(1, claim_plan.JITTER * 100)} % are added or taken away"),
    ("wakeups", f"{LONGEST_LOOK:g} seconds with the defaults"),
    ("how-it-works", f"{LONGEST_LOOK:g} seconds by default"),
    ("how-it-works", f"(fillfactor {tables.FILLFACTOR})"),
    ("how-it-works", f"longer than {'half a second' if after_commit.LATE_SECONDS == 0.5 else '?'} after publishing"),
    ("how-it-works", f"to {'a second' if lanes.GRACE == 1 else '?'} before the last scan that went below it"),
    ("how-it-works", f"leases that are {'a third' if renewer.FRACTION == 3 else '?'} of their time old"),
    ("how-it-works", f"handles in {'a tenth' if 2 * worker.HOARD_SECONDS == 0.1 else '?'} of a second"),
    ("how-it-works", f"passed over for {'five' if lanes.PATIENCE == 5 else '?'} seconds gets a tenth"),
    ("health", f"a step has a limit: {STUCK_SECONDS:g} seconds"),
    ("health", f"{scanner.SCAN_TIMEOUT + STUCK_SECONDS:g} for a full scan"),
    ("health", f"at most every {'two' if readiness.FRESH_SECONDS == 2 else '?'} seconds, whoever asks"),
    ("health", f"for {'ten' if progress.BUSY_SECONDS == 600 else '?'} minutes"),
    ("health", f"does not hear` | {progress.GRACE_SECONDS:g} s |"),
    ("health", f"every {'five' if readiness.EXAMINE_SECONDS == 300 else '?'} minutes"),
    ("health", f"every {'five' if readiness.EXAMINE_AGAIN_SECONDS == 5 else '?'} seconds while they do not fit"),
    ("health", f"closes it {'half a minute' if readiness.KEEP_SECONDS == 30 else '?'} after the last"),
    ("health", f"A probe waits for {TIMEOUT:g} seconds at most"),
    ("tables", f"## Fillfactor {tables.FILLFACTOR}"),
    ("dead-letters", f"keeps at most {worker.MOST_UNSETTLED:,} unwritten outcomes"),
    ("dead-letters", f"after {settler.SAY_AGAIN_SECONDS:g} seconds, a minute, two, up to an hour"),
    (
        "failures",
        f"with the defaults {DEFAULTS.lease_ttl_seconds:g} to {DEFAULTS.lease_ttl_seconds + LONGEST_LOOK:g} seconds, "
        f"with a lease of {SHORT_LEASE:g} seconds {SHORT_LEASE:g} to {SHORT_LEASE + SHORT_LOOK:.0f}",
    ),
    ("failures", f"without a recorded outcome. {DEFAULTS.crash_limit} by default"),
    ("metrics", f"after {MOST_VALUES} values of a label"),
    ("metrics", f"beyond the {'hundred' if MOST_NAMES == 100 else '?'} with the most messages"),
    ("metrics", f"ends its transaction {PATIENCE:g} seconds after the next question was due"),
    ("metrics", f"every {'minute' if TRY_SECONDS == 60 else '?'} or so"),
    ("metrics", f"Counts end at {MOST:,} for each queue"),
    ("metrics", f"{'five' if overview.TIMEOUT == 5 else '?'} seconds each"),
    ("scaling", f"A group of a topic has {slots.SLOTS}."),
]


@each(("page", "sentence"), SAID)
def test_page_says_what_the_code_has(page: str, sentence: str) -> None:
    assert sentence in " ".join(text_of(f"docs/{page}.md").split())


def test_an_outage_is_said_again_by_the_journal_as_by_whoever_writes() -> None:
    assert (settler.SAY_AGAIN_SECONDS, settler.LONGEST_SILENCE) == (repeats.FIRST_SILENCE, repeats.LONGEST_SILENCE)
    assert settler.LONGEST_SILENCE == 3600


def test_readme_names_the_versions_that_are_required() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = dict(item.split(">=", 1) for item in project["dependencies"])
    said = " ".join(text_of("README.md").split())
    assert f"Python from {project['requires-python'].removeprefix('>=')}" in said
    assert f"FastStream 0.7 from {needs['faststream'].split(',')[0]} on" in said
    assert f"SQLAlchemy from {needs['sqlalchemy[asyncio]']}" in said
    assert f"faststream_outbox-{project['version']}-py3-none-any.whl" in said


SCALING = "docs/scaling.md"


def test_blocks_of_the_example_of_shards_are_those_of_its_files() -> None:
    shown = [part for part in parts(SCALING) if part.reason is not None]
    assert len(shown) == 2
    for part in shown:
        path = str(part.reason).removeprefix("from ")
        assert part.code in (ROOT / path).read_text(), path


def test_no_budget_of_wal_is_above_what_the_page_names() -> None:
    allowed = {case: limits["wal_bytes"] for case, limits in json.loads(BASELINE.read_text()).items()}
    named = {row[0]: float(row[1]) for row in rows_of(SCALING, "## One server") if row[0] in allowed}
    assert named.keys() == allowed.keys()
    assert all(allowed[case] <= named[case] < 1.3 * allowed[case] for case in allowed), (named, allowed)
    life = named["publish, one a transaction"] + named["drain, defaults, access log off"]
    assert f"{life:.0f} bytes" in text_of(SCALING)
