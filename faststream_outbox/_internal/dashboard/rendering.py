"""Templates: everything that they print is escaped, and what cannot be seen is written out. Used by `page`."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from faststream_outbox._internal.dashboard import wording
from faststream_outbox._internal.dashboard.sparkline import sparkline


@cache
def environment() -> Environment:
    """The templates of this package."""
    made = Environment(
        loader=PackageLoader("faststream_outbox._internal.dashboard", "templates"),
        autoescape=True,
        auto_reload=False,
        finalize=wording.visible,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters.update(wording.FILTERS)
    made.globals.update(
        anchor=wording.anchor, counted=wording.counted, ago=wording.ago, plural=wording.plural, sparkline=sparkline
    )
    return made


def render(template: str, context: dict[str, Any]) -> str:
    """A page of HTML."""
    return environment().get_template(template).render(context)
