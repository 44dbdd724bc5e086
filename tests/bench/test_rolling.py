"""A rolling deploy from 0.19: its account adds up, and nothing is lost."""

import subprocess

import pytest

from bench.peer import peers
from bench.rolling import NEW, OLD, Done, Story, roll
from bench.stage import SETTINGS
from faststream_outbox.testing.postgres import PostgresServer


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
