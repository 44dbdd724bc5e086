"""Kafka, played by the mock cluster that librdkafka carries: real listeners, no disk, gone with its process.

Its own way to be down is part of librdkafka's library and not of the Python client: it is called there by name.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, TopicPartition, cimpl

PATIENCE = 30.0
PARTITIONS = 4
"""Of a topic, unless the mock is told otherwise."""
BROKER = 1
_PRODUCER = 0


class KafkaCluster:
    """One broker, which may be away for a time, and keeps what it has meanwhile."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(cimpl.__file__)
        for name in ("conf_new", "new", "mock_cluster_new"):
            getattr(self._library, f"rd_kafka_{name}").restype = ctypes.c_void_p
        self._library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        said = ctypes.create_string_buffer(512)
        settings = ctypes.c_void_p(self._call("conf_new"))
        self._call("conf_set", settings, b"log_level", b"0", said, len(said))
        self._client = ctypes.c_void_p(self._call("new", _PRODUCER, settings, said, len(said)))
        assert self._client, said.value
        self._cluster = ctypes.c_void_p(self._call("mock_cluster_new", self._client, 1))
        self.url = self._call("mock_cluster_bootstraps", self._cluster).decode()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def advertise(self, port: int) -> None:
        """Send clients to another port of this machine, where something stands in between."""
        assert self._call("mock_broker_set_host_port", self._cluster, BROKER, b"127.0.0.1", port) == 0

    def down(self) -> None:
        """Close all connections, and refuse new ones."""
        assert self._call("mock_broker_set_down", self._cluster, BROKER) == 0

    def up(self) -> None:
        """Answer again."""
        assert self._call("mock_broker_set_up", self._cluster, BROKER) == 0

    def close(self) -> None:
        self._call("mock_cluster_destroy", self._cluster)
        self._call("destroy", self._client)

    def _call(self, name: str, *values: Any) -> Any:
        return getattr(self._library, f"rd_kafka_{name}")(*values)


@contextmanager
def kafka_cluster() -> Iterator[str]:
    """The address of a broker."""
    cluster = KafkaCluster()
    try:
        yield cluster.url
    finally:
        cluster.close()


class TopicReader:
    """Reads a topic from its beginning."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": address, "group.id": "test"})
        self._places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        self._consumer.assign(self._places)
        self.found: list[Any] = []

    def has(self, count: int) -> bool:
        """Read on; whether there were so many messages by now."""
        self.found += self._consumer.consume(1000, timeout=0.1)
        return len(self.found) >= count

    def read_all(self) -> list[Any]:
        """Everything that is there now."""
        ends = [self._consumer.get_watermark_offsets(place, timeout=PATIENCE)[1] for place in self._places]
        while not self.has(sum(ends)):
            pass
        return self.found

    def close(self) -> None:
        self._consumer.close()
