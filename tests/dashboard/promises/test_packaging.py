"""The wheel carries the templates, the static files, and the licences of what others wrote."""

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[3]
PLACE = "faststream_outbox/_internal/dashboard"


def test_wheel_has_every_template_and_static_file() -> None:
    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    there = {
        str(path.relative_to(ROOT))
        for folder in ("templates", "static")
        for path in (ROOT / PLACE / folder).rglob("*")
        if path.is_file()
    }
    assert len(there) > 20
    assert there <= packed


def test_what_others_wrote_has_its_licence_beside_it() -> None:
    vendored = list((ROOT / PLACE / "static" / "vendor").iterdir())
    licensed = {path.name.partition(".")[0] for path in vendored if path.name.endswith(".LICENSE.txt")}
    assert {path.name.partition("-")[0] for path in vendored if path.suffix in (".js", ".css")} == licensed
