"""Where the test broker is found from below: FastStream looks for it as soon as there is a broker.

FastStream finds the test broker of a broker among the classes that were made, for example when somebody tries a
message out on the page of its AsyncAPI documents. The application has imported nothing for that but the broker, so the
package of the broker has one registered. It lives above, in `faststream_outbox.testing`, and is named only here. Its
names can be imported from here too.
"""

from importlib import import_module
from typing import Any

HOME = "faststream_outbox.testing"


def register() -> None:
    """Let FastStream know of the test broker, which is not imported for that."""
    import_module(f"{HOME}.registration")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(HOME), name)
