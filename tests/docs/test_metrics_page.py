"""The page of metrics lists exactly the series that the code has, with their types, labels and meanings."""

from prometheus_client import CollectorRegistry

from faststream_outbox._internal.metrics.sampler import MOST_NAMES, MOST_VALUES, PATIENCE, TRY_SECONDS
from faststream_outbox._internal.metrics.series import ALL_SERIES, SAMPLED_SERIES, Series
from faststream_outbox._internal.overview.overview import TIMEOUT
from faststream_outbox._internal.overview.queues import MOST
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from tests.cases import each
from tests.docs.pages import names, rows, text_of

PAGE = "docs/metrics.md"
TYPES = {"counter": "counter", "gauge": "gauge", "seconds": "histogram", "amount": "histogram"}


def in_code(series: Series) -> tuple[str, str, str, list[str], str]:
    name = f"faststream_outbox_{series.name}" + ("_total" if series.kind == "counter" else "")
    labels = [*(["handler", "group"] if series.of_handler else []), *series.labels]
    return name, series.instrument, TYPES[series.kind], labels, series.help


@each(("heading", "series"), [("## Asked of the database", SAMPLED_SERIES), ("## Counted from events", ALL_SERIES)])
def test_page_lists_every_series(heading: str, series: tuple[Series, ...]) -> None:
    printed = [
        (names(name)[0], names(instrument)[0], kind, names(labels), meaning)
        for name, instrument, kind, labels, meaning in rows(PAGE, heading)[: len(series)]
    ]
    assert printed == [in_code(each) for each in series]


def test_names_on_the_page_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    PrometheusRecorder(registry=registry, include_bus_metrics=False, sample_every=15)
    made = {metric.name + ("_total" if metric.type == "counter" else "") for metric in registry.collect()}
    assert made == {in_code(each)[0] for each in (*ALL_SERIES, *SAMPLED_SERIES)}


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    said = " ".join(text_of(PAGE).split())
    assert f"after {MOST_VALUES} values of a label" in said
    assert f"beyond the {'hundred' if MOST_NAMES == 100 else '?'} with the most messages" in said
    assert f"ends its transaction {PATIENCE:g} seconds after the next question was due" in said
    assert f"every {'minute' if TRY_SECONDS == 60 else '?'} or so" in said
    assert f"Counts end at {MOST:,} for each queue" in said
    assert f"{'five' if TIMEOUT == 5 else '?'} seconds each" in said
