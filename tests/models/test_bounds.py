"""Nothing is wrong within the bounds, every mistake is found, and the page has the numbers."""

from pathlib import Path
from typing import Any

import pytest

from tests.models.__main__ import line, mistake
from tests.models.bounds import LARGE, MISTAKES, SMALL
from tests.models.explorer import Model, explore

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def _check(name: str, model: Model[Any]) -> None:
    explored = explore(model)
    assert explored.wrong is None, f"{explored.wrong}: {'; '.join(explored.way)}"
    assert line(name, explored) in PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_nothing_is_wrong_in_any_state(name: str) -> None:
    _check(name, SMALL[name])


@pytest.mark.soak
@pytest.mark.parametrize("name", LARGE)
def test_nothing_is_wrong_in_any_state_of_more(name: str) -> None:
    _check(name, LARGE[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str) -> None:
    explored = explore(MISTAKES[name])
    assert explored.wrong is not None
    assert mistake(name, explored) in PAGE.read_text(encoding="utf-8")
