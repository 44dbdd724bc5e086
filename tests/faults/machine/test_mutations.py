"""The checker sees what comes of a missing guard, every time; and nothing where the guard is there."""

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.machine.child import MUTATION
from tests.faults.machine.mutations import MUTATIONS
from tests.faults.machine.play import play
from tests.faults.machine.scenes import SCENES

pytestmark = pytest.mark.faults

QUICKEST = "settled_before_confirm"
"""The one that is played in every run of the tests; the others take minutes together."""
PLAYED = [QUICKEST, *(pytest.param(name, marks=pytest.mark.soak) for name in SCENES if name != QUICKEST)]


def test_every_mutation_has_a_scene() -> None:
    assert SCENES.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("name", PLAYED)
async def test_scene_is_clean_with_the_guard(name: str, tmp_path: Path) -> None:
    scene = SCENES[name]
    report = await play(scene.plan, tmp_path, scene.breaks(tmp_path))
    assert len(report.facts.business) > 0
    assert [str(wrong) for wrong in report.wrongs] == []


@pytest.mark.parametrize("name", PLAYED)
async def test_missing_guard_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = SCENES[name]
    monkeypatch.setenv(MUTATION, name)
    report = await play(scene.plan, tmp_path, scene.breaks(tmp_path))
    kinds = Counter(wrong.kind for wrong in report.wrongs)
    print(dict(kinds))
    assert scene.found & kinds.keys(), f"found {dict(kinds)}"
