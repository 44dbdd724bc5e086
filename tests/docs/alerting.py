"""Whether an alert of deploy/prometheus fires for what a process really shows on /metrics.

By Prometheus itself, where its `promtool` is installed (Debian's package `prometheus`): the readings stand still for as
long as the rule wants, and the alert with its summary has to come, or not to come. Without it the alert's expression is
evaluated here, which knows the few forms that it needs. Where both are there, they have to agree.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.docs.pages import ROOT

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
_COMPARED = re.compile(r"max by \((\w+)\) \((\w+)\) (>|==) (\d+)")


def rule(alert: str) -> Mapping[str, Any]:
    """One rule of the file."""
    (found,) = [each for each in yaml.safe_load(RULES.read_text())["groups"][0]["rules"] if each["alert"] == alert]
    result: Mapping[str, Any] = found
    return result


def samples(shown: str) -> list[tuple[str, dict[str, str], float]]:
    """What /metrics has."""
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(shown)
        for sample in family.samples
    ]


def evaluated(expression: str, shown: str) -> dict[str, float]:
    """The value of `max by (l) (a) > n unless on (l) (max by (l) (b) == m)` for each l that has one."""
    asked, _, excepted = expression.partition("unless on")
    wanted = _compared(asked, shown)
    return {label: value for label, value in wanted.items() if label not in _compared(excepted, shown)}


def _compared(expression: str, shown: str) -> dict[str, float]:
    ((label, name, sign, limit),) = _COMPARED.findall(expression)
    highest: dict[str, float] = {}
    for found, labels, value in samples(shown):
        if found == name:
            highest[labels[label]] = max(value, highest.get(labels[label], value))
    passes = (lambda value: value > float(limit)) if sign == ">" else (lambda value: value == float(limit))
    return {each: value for each, value in highest.items() if passes(value)}


def check(alert: str, shown: str, folder: Path) -> dict[str, str]:
    """The summaries of an alert that fires, by queue; nothing where it does not."""
    wanted = rule(alert)
    firing = evaluated(wanted["expr"], shown)
    summaries = {queue: summary(wanted, queue, value) for queue, value in firing.items()}
    promtool = shutil.which("promtool")
    if promtool is not None:
        ask_prometheus(promtool, wanted, shown, summaries, folder)
    return summaries


def summary(wanted: Mapping[str, Any], queue: str, seconds: float) -> str:
    """The annotation, as Prometheus fills it."""
    spoken = f"{int(seconds) // 60}m {int(seconds) % 60}s"
    text: str = wanted["annotations"]["summary"]
    return text.replace("{{ $labels.queue }}", queue).replace("{{ $value | humanizeDuration }}", spoken)


def ask_prometheus(
    promtool: str, wanted: Mapping[str, Any], shown: str, summaries: Mapping[str, str], folder: Path
) -> None:
    """Let Prometheus evaluate the rule over ten minutes of these readings, and compare."""
    names = set(re.findall(r"faststream_\w+", wanted["expr"]))
    series = [
        {"series": f"{name}{{{labelled(labels)}}}", "values": f"{value}+0x10"}
        for name, labels, value in samples(shown)
        if name in names
    ]
    expected = [
        {
            "exp_labels": {**wanted["labels"], "queue": queue},
            "exp_annotations": {"summary": said, "runbook_url": wanted["annotations"]["runbook_url"]},
        }
        for queue, said in summaries.items()
    ]
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "alert_rule_test": [{"eval_time": "10m", "alertname": wanted["alert"], "exp_alerts": expected}],
            }
        ],
    }
    file = folder / "alert.test.yml"
    file.write_text(json.dumps(test))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def labelled(labels: Mapping[str, str]) -> str:
    """Labels, as a series has them."""
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
