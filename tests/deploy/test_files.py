"""Files for Grafana, Prometheus and KEDA name only series and labels that exist, and each alert has its runbook."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
import yaml
from prometheus_client import CollectorRegistry
from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.cli.app import app
from faststream_outbox._internal.metrics.series import ALL_SERIES, SAMPLED_SERIES
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from tests.cases import each
from tests.docs.pages import ROOT
from tests.docs.test_cli_page import names
from tests.servers.programs import promtool

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
PREFIX = "faststream_outbox_"
ENDINGS = ("_total", "_count", "_sum", "_bucket")
EVERYWHERE = {"app_name", "broker", "le"}


def expressions() -> Iterator[tuple[str, str]]:
    """Every query, with the place where it stands."""
    for rule in rules():
        yield f"rules.yml: {rule['alert']}", rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield f"outbox.json: {panel['title']}", target["expr"]
    for path in (DEPLOY / "keda").glob("*.yml"):
        for trigger in yaml.safe_load(path.read_text())["spec"]["triggers"]:
            if trigger["type"] == "prometheus":
                yield path.name, trigger["metadata"]["query"]


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "outbox.json").read_text())
    return found


def known() -> dict[str, set[str]]:
    """The names of samples that a registry has, and the labels of each."""
    registry = CollectorRegistry()
    PrometheusRecorder(registry=registry, sample_every=15)
    found: dict[str, set[str]] = {}
    for series in (*ALL_SERIES, *SAMPLED_SERIES):
        labels = {*series.labels, *(("handler", "group") if series.of_handler else ()), *EVERYWHERE}
        endings = {"counter": ["_total"], "gauge": [""]}.get(series.kind, ["_count", "_sum", "_bucket"])
        for ending in endings:
            found[f"{PREFIX}{series.name}{ending}"] = labels
    for metric in registry.collect():
        if not metric.name.startswith(PREFIX):
            for ending in ("", *ENDINGS):
                found[metric.name + ending] = {"handler", "destination", "status", "exception_type", *EVERYWHERE}
    return found


EXPRESSIONS = list(expressions())
_NAME = re.compile(r"\bfaststream_\w+")
_BY = re.compile(r"\bby \(([^)]*)\)")


@each(("place", "expression"), EXPRESSIONS)
def test_every_series_that_is_named_exists(place: str, expression: str) -> None:
    unknown = {name for name in _NAME.findall(expression) if name not in known()}
    assert unknown == set(), place


@each(("place", "expression"), EXPRESSIONS)
def test_every_label_that_is_named_is_one_of_its_series(place: str, expression: str) -> None:
    labels = set.union(*(known()[name] for name in _NAME.findall(expression)))
    asked = {label.strip() for group in _BY.findall(expression) for label in group.split(",")}
    asked |= set(re.findall(r"[{,]\s*(\w+)=", expression))
    assert asked <= labels, place


def test_gauges_of_one_process_are_never_summed() -> None:
    sampled = {f"{PREFIX}{series.name}" for series in SAMPLED_SERIES}
    summed = {
        (place, name)
        for place, expression in EXPRESSIONS
        for inner in re.findall(r"sum by \([^)]*\) \(([^)]*)\)", expression)
        for name in _NAME.findall(inner)
        if name in sampled
    }
    assert summed == set()


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    named = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules()}
    pages = sorted(path for path in (ROOT / "docs" / "runbooks").glob("*.md") if path.name != "index.md")
    assert {str(path.relative_to(ROOT)) for path in pages} == set(named.values())
    for alert, page in named.items():
        written = (ROOT / page).read_text()
        assert written.startswith(f"# {alert}\n"), page
        assert "## Look" in written, page
        assert "faststream-outbox " in written, page
        assert "## Repair" in written, page
    index = (ROOT / "docs" / "runbooks" / "index.md").read_text()
    assert all(f"[{alert}]({Path(page).name})" in index for alert, page in named.items())


def test_every_alert_says_whom_it_wakes_and_why() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert rule["annotations"]["summary"].endswith("."), rule["alert"]


def test_rules_are_rules_to_prometheus() -> None:
    checked = subprocess.run([promtool(), "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_parentheses_of_queries_are_balanced() -> None:
    for place, expression in EXPRESSIONS:
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing), place


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


async def test_question_of_keda_reads_an_index(engine: AsyncEngine, table: Table) -> None:
    (trigger,) = yaml.safe_load((DEPLOY / "keda" / "scaledobject-postgresql.yml").read_text())["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    async with engine.begin() as connection:
        for queue, key, count in (("others", "null", 20_000), ("others", "'k'", 20_000), ("orders", "null", 7)):
            filled = (
                f"insert into outbox (queue, key, payload) select '{queue}', {key}, '' from generate_series(1, {count})"
            )
            await connection.execute(text(filled))
        await connection.execute(text("analyze outbox"))
        assert (await connection.execute(text(query))).scalar_one() == 7
        plan = "\n".join((await connection.execute(text(f"explain {query}"))).scalars())
    assert "Seq Scan" not in plan
    assert plan.count("Index") >= 2


def test_commands_of_runbooks_exist() -> None:
    known = set(names(typer.main.get_command(app)))
    groups = {name.partition(" ")[0] for name in known if " " in name}
    pages = (ROOT / "docs" / "runbooks").glob("*.md")
    lines = {line for page in pages for line in re.findall(r"faststream-outbox ([a-z]+(?: [a-z]+)?)", page.read_text())}
    assert len(lines) > 10
    # What stands behind a command is its argument, and behind a group its command.
    assert {line for line in lines if not {line, line.partition(" ")[0]} & known and line not in groups} == set()
