"""Several processes that share a directory of `prometheus_client` are one to whoever scrapes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, multiprocess

PROCESS = """
import sys
from prometheus_client import CollectorRegistry
from faststream_outbox import events
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from faststream_outbox._internal.metrics.sampler import Reading
from faststream_outbox._internal.metrics.series import QUEUE_READY

recorder = PrometheusRecorder(registry=CollectorRegistry(), sample_every=15)
for event in (
    events.Claimed("orders", "billing", 5),
    events.SlotsHeld("billing", "orders", "a member", 128, 2),
    events.ListenerReady("outbox") if sys.argv[1] == "first" else events.ListenerLost("outbox", None),
):
    recorder._hear(event)
recorder.show([Reading(QUEUE_READY, {"queue": "orders"}, 3 if sys.argv[1] == "first" else 7)])
recorder.hide()
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.mark.slow
def test_counters_are_summed_and_gauges_are_what_the_page_says(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    running = []
    for name in ("first", "second"):
        process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, name],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "ready\n"
        running.append(process)
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=str(tmp_path))
    found = {sample.name: sample.value for metric in registry.collect() for sample in metric.samples}
    for process in running:
        process.communicate("")
    assert found["faststream_outbox_fetch_batches_total"] == 2
    assert found["faststream_outbox_slots_held"] == 256
    assert found["faststream_outbox_listener_up"] == 0
    assert found["faststream_outbox_queue_ready"] == 7
