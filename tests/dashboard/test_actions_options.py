"""Options of a dashboard, selections of dead letters, and addresses of traces."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import OutboxBroker, make_dlq_table, make_outbox_table
from faststream_outbox._internal.dashboard.dashboard import address_of, check_host
from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.replays import MOST_IDS, chosen
from faststream_outbox._internal.dashboard.screens.message import trace_address
from faststream_outbox._internal.queue.dead_letters import Selection
from faststream_outbox.dashboard import BasicAuth, make_dashboard, serve
from faststream_outbox.errors import InvalidOption, InvalidOptionType
from tests.cases import each

ENGINE = create_async_engine("postgresql+asyncpg://localhost/nowhere")
METADATA = MetaData()
TABLE, DLQ_TABLE = make_outbox_table(METADATA), make_dlq_table(METADATA)
MESSAGE = {
    "headers": {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "correlation_id": "a/b?c"},
    "message_id": UUID(int=7),
    "queue": "orders",
    "key": None,
}


@each(
    ("changed", "error"),
    [
        ({"table": None}, InvalidOption),
        ({"trace_url": "https://traces.example/"}, InvalidOption),
        ({"trace_url": "https://traces.example/{nothing}"}, InvalidOption),
        ({"trace_url": "javascript:alert({trace_id})"}, InvalidOption),
        ({"trace_url": "https://{trace_id}/x"}, InvalidOption),
        ({"trace_url": "https://traces.example/{"}, InvalidOption),
        ({"late_after": 0}, InvalidOption),
        ({"read_only": "yes"}, InvalidOptionType),
        ({"timeout": -1}, InvalidOption),
    ],
)
def test_options_that_cannot_work_are_refused(changed: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        make_dashboard(ENGINE, **({"table": TABLE, "dlq_table": DLQ_TABLE} | changed))


def test_dashboard_is_of_a_broker_or_of_an_engine() -> None:
    broker = OutboxBroker(ENGINE, outbox_table=TABLE, dlq_table=DLQ_TABLE)
    make_dashboard(broker)
    with pytest.raises(InvalidOption, match="knows its tables"):
        make_dashboard(broker, table=TABLE)
    with pytest.raises(InvalidOptionType, match=r"router\.broker"):
        make_dashboard(object())  # type: ignore[arg-type]


def test_open_dashboard_is_served_on_this_machine_only() -> None:
    dashboard = make_dashboard(ENGINE, table=TABLE)
    check_host(dashboard, "127.0.0.1")
    check_host(dashboard, "::1")
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(InvalidOption, match="auth=BasicAuth"):
            check_host(dashboard, host)
    assert "/?token=" in address_of(dashboard, "127.0.0.1", 8710)
    guarded = make_dashboard(ENGINE, table=TABLE, auth=BasicAuth({"ada": "correct horse"}))
    check_host(guarded, "0.0.0.0")
    assert address_of(guarded, "::1", 80) == "http://[::1]:80/"


@each(
    ("template", "address"),
    [
        (None, None),
        ("https://t.example/{trace_id}", "https://t.example/4bf92f3577b34da6a3ce929d0e0e4736"),
        ("https://t.example/?c={correlation_id}", "https://t.example/?c=a%2Fb%3Fc"),
        ("https://t.example/{key}", None),
        ("https://t.example/{queue}/{message_id}", "https://t.example/orders/00000000-0000-0000-0000-000000000007"),
    ],
)
def test_trace_has_an_address_where_its_fields_are_known(template: str | None, address: str | None) -> None:
    assert trace_address(template, MESSAGE) == address


def test_selection_of_an_address() -> None:
    choice = chosen({"queue": " orders ", "error_type": "", "since": "2026-03-01T12:30", "other": "x"})
    assert choice.selection == Selection(queue="orders", since=datetime(2026, 3, 1, 12, 30, tzinfo=UTC))
    assert choice.fields == {"queue": "orders", "since": "2026-03-01T12:30"}
    everything = chosen({})
    assert everything.selection == Selection(everything=True)
    assert not everything.is_narrow
    assert chosen({}, ("3", "4")).selection.ids == [3, 4]


@each("given", [{"ids": "a"}, {"ids": "1,,2"}, {"ids": ",".join(["1"] * (MOST_IDS + 1))}, {"since": "yesterday"}])
def test_selection_that_says_nonsense_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(Refused):
        chosen(given)


def test_serving_says_where(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    served: list[dict[str, Any]] = []
    monkeypatch.setattr("uvicorn.run", lambda app, **given: served.append(given))
    dashboard = make_dashboard(ENGINE, table=TABLE)
    serve(dashboard, port=8711)
    (given,) = served
    assert (given["host"], given["port"], given["access_log"]) == ("127.0.0.1", 8711, False)
    assert "Dashboard: http://127.0.0.1:8711/?token=" in capsys.readouterr().err
    with pytest.raises(InvalidOption):
        serve(dashboard, host="0.0.0.0")
    assert len(served) == 1
