"""A run in which the machine itself failed is never green."""

from pathlib import Path

from tests.faults.machine.checker import check
from tests.faults.machine.facts import Facts, save
from tests.faults.machine.history import History, read
from tests.faults.machine.play import FACTS_FILE, checked


def kinds(directory: Path) -> list[tuple[str, str]]:
    return [(wrong.kind, wrong.message) for wrong in checked(directory).wrongs]


def test_failure_of_the_machine_is_named(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.missed("rows locked", TimeoutError())
    save(Facts(), tmp_path / FACTS_FILE)
    assert check(read(tmp_path), Facts()) == []
    history.failed("draining", RuntimeError("no connection"))
    assert kinds(tmp_path) == [("not judged", "draining")]


def test_run_without_facts_is_not_judged(tmp_path: Path) -> None:
    History(tmp_path).failed("gathering the facts", RuntimeError("no connection"))
    assert kinds(tmp_path) == [("not judged", "the run"), ("not judged", "gathering the facts")]
