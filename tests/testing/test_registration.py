"""Where the test broker is found: by FastStream once there is a broker, and by tests under each of its addresses."""

import subprocess
import sys

import pytest

import faststream_outbox.broker
from faststream_outbox._internal.testing.broker import TestOutboxBroker
from tests.cases import each

# FastStream asks for the test broker of a broker where somebody tries a message out on its documents.
SCRIPT = """
{line}

from faststream._internal.testing.broker import find_test_broker
from sqlalchemy import MetaData

from faststream_outbox.schema import make_outbox_table

broker = OutboxBroker(outbox_table=make_outbox_table(MetaData()), dlq_table=None)
print(type(find_test_broker(broker)(broker)).__name__)
"""


def ran(script: str, *arguments: str) -> tuple[str, str]:
    """What Python says of a script, and of what went wrong."""
    run = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    return run.stdout.strip(), run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "from faststream_outbox import OutboxBroker",
        "from faststream_outbox._internal.broker.broker import OutboxBroker",
        "from faststream_outbox.annotations import Broker as OutboxBroker",
    ],
)
def test_faststream_knows_it_whatever_imported_the_broker(line: str) -> None:
    assert ran(SCRIPT.format(line=line)) == ("TestOutboxBroker", "")


# Each in a package that nobody has imported anything of yet.
IN_TURN = """
import importlib, sys

for name in sys.argv[1:]:
    for known in [known for known in sys.modules if known.partition(".")[0] == "faststream_outbox"]:
        del sys.modules[known]
    importlib.import_module(name)
print("imported")
"""


@pytest.mark.slow
def test_whatever_has_to_do_with_it_can_be_the_first_that_is_imported() -> None:
    """The broker names it by a string, which no contract of import-linter sees."""
    inner = ["broker.broker", "testing.registration", "testing.broker", "memory.client"]
    names = ["broker", "testing", *[f"_internal.{name}" for name in inner]]
    assert ran(IN_TURN, *[f"faststream_outbox.{name}" for name in names])[0] == "imported"


@pytest.mark.slow
def test_a_broker_does_not_load_the_tables_in_memory() -> None:
    script = "import sys, faststream_outbox.broker; print([name for name in sys.modules if '_internal.memory' in name])"
    assert ran(script) == ("[]", "")


@each("module", [faststream_outbox, faststream_outbox.broker, faststream_outbox.testing])
def test_it_can_be_imported_from_everywhere(module: object) -> None:
    assert module.TestOutboxBroker is TestOutboxBroker  # type: ignore[attr-defined]
