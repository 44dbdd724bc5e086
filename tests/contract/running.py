"""Printed snippets, run as they are printed.

`await` may stand outside of functions. The address of the test's database takes the place of
`localhost/app`; everything else that a snippet uses and does not define comes in as names.
"""

import ast
import inspect
import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL

SNIPPET = "snippet.py"
"""The file that tracebacks and warnings name."""

_ADDRESS = re.compile(r"(postgresql\+\w+)://localhost/app")


async def run(snippet: str, names: Mapping[str, Any], url: URL | None = None, *, file: str = SNIPPET) -> dict[str, Any]:
    """Run a snippet with these names, and give all that it knows at its end."""
    code = snippet
    if url is not None:
        code = _ADDRESS.sub(lambda found: url.set(drivername=found[1]).render_as_string(hide_password=False), code)
    namespace = {"__name__": __name__, **names}
    compiled = compile(code, file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    answer = eval(compiled, namespace)
    if inspect.isawaitable(answer):
        await answer
    return namespace


def line_of(snippet: str, words: str) -> int:
    """The number of the first line that has these words."""
    return next(number for number, line in enumerate(snippet.splitlines(), start=1) if words in line)
