"""Whatever is written on the command line, it ends with a known exit code and without a traceback."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faststream_outbox._internal.cli.exits import Exit
from tests.cli.stage import Stage

COMMANDS = [
    ["peek"],
    ["show"],
    ["dead", "list"],
    ["dead", "show"],
    ["dead", "replay", "--dry-run"],
    ["dead", "edit", "--yes"],
    ["timers", "cancel", "orders"],
    ["pause"],
    ["groups", "seek", "billing", "--dry-run"],
    ["parked", "list"],
    ["schema", "check"],
    ["inbox", "clean", "--dry-run", "--older-than"],
]
OPTIONS = [
    "--queue",
    "--since",
    "--id",
    "--limit",
    "--table",
    "--schema",
    "--uri",
    "--json",
    "--group",
    "--key",
    "--",
    "-n",
]
WORDS = st.sampled_from(OPTIONS) | st.text(max_size=12) | st.integers().map(str)
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def ends_in_a_known_way(stage: Stage, start: list[str], more: list[str]) -> None:
    printed = stage.run(*start, *more, code=None)
    assert printed.code in {int(exit) for exit in Exit} - {Exit.INTERRUPTED}
    assert UNSEEN.search(printed.out) is None


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(COMMANDS), st.lists(WORDS, max_size=3))
def test_any_arguments_end_in_a_known_way(stage: Stage, start: list[str], more: list[str]) -> None:
    ends_in_a_known_way(stage, start, more)


@pytest.mark.soak
@settings(max_examples=1000, derandomize=False, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(COMMANDS), st.lists(WORDS, max_size=3))
def test_any_arguments_end_in_a_known_way_at_length(stage: Stage, start: list[str], more: list[str]) -> None:
    ends_in_a_known_way(stage, start, more)


def test_a_stranger_s_names_are_harmless_wherever_they_are_shown(stage: Stage) -> None:
    hostile = "\x1b]0;x\x07[bold]\u202e\n"
    stage.bury(1, queue=hostile, error=hostile)
    stage.topic(group=hostile, keys=[hostile], parks=True)
    for arguments in (["dead", "list"], ["dead", "groups"], ["dead", "show", "1"], ["parked", "list"]):
        for json in ([], ["--json"]):
            assert UNSEEN.search(stage.run(*arguments, *json).said) is None
