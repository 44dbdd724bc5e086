"""The command that serves the dashboard, whose pages have tests of their own."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.stage import Stage


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be served."""
    calls: list[Any] = []

    def make(engine: Any, **options: Any) -> dict[str, Any]:
        return {"engine": engine, **options}

    fake = SimpleNamespace(
        make_dashboard=make,
        serve=lambda page, host, port: calls.append((page, host, port)),
        BasicAuth=lambda users: users,
    )
    monkeypatch.setitem(sys.modules, "faststream_outbox.dashboard", fake)  # type: ignore[arg-type]
    return calls


def test_serves_what_is_in_the_database(stage: Stage, served: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_DASHBOARD_AUTH", "me:secret")
    stage.run("dashboard", "--port", "9000", "--read-only")
    ((page, host, port),) = served
    assert (host, port, page["read_only"], page["auth"]) == ("127.0.0.1", 9000, True, {"me": "secret"})
    assert (page["table"].name, page["log_tables"].log.name) == ("outbox", "outbox_log")


def test_needs_a_name_and_a_password(stage: Stage, served: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_DASHBOARD_AUTH", "secret")
    printed = stage.run("dashboard", code=2)
    assert "name:password" in printed.err
    assert "secret" not in printed.err
    assert served == []


def test_says_what_to_install(stage: Stage, served: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)  # type: ignore[arg-type]
    assert "pip install '.[dashboard]' uvicorn" in stage.run("dashboard", code=2).err
