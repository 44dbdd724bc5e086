"""Every Python and SQL block of the documentation runs, on a real PostgreSQL, as it is printed.

The blocks of a page share one namespace, in order, and one fresh database, whose address takes the
place of `localhost/app`. `await` may stand outside of functions, as in `python -m asyncio`. A page with tabs
runs once for each way through it, so that nobody needs a name of the other tab.
"""

import ast
import inspect
import re
import sys
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import OutboxBroker
from faststream_outbox.log import Outbox
from faststream_outbox.queue import Worker
from tests.cases import each
from tests.docs.pages import FASTSTREAM, LANGUAGES, ROOT, WITHOUT, Part, pages, parts, parts_of, tabs, text_of, ways
from tests.waiting import eventually

PLACEHOLDER = re.compile(r"(postgresql(?:\+\w+)?)://localhost/app")


@pytest.fixture
def page_url(database_url: URL) -> Iterator[URL]:
    """An empty database."""
    name = f"{database_url.database}_docs"
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute(drop)
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield database_url.set(database=name)
        connection.execute(drop)


@pytest.fixture
async def namespace(request: pytest.FixtureRequest) -> AsyncIterator[dict[str, Any]]:
    """A module of its own, which dataclasses and mapped classes look themselves up in."""
    module = ModuleType("page")
    sys.modules[module.__name__] = module
    yield module.__dict__
    for value in list(module.__dict__.values()):
        if isinstance(value, Worker | OutboxBroker):
            await value.stop()
        elif isinstance(value, Outbox):
            await value.cleanup()
    for value in list(module.__dict__.values()):
        if isinstance(value, AsyncEngine):
            await value.dispose()
    del sys.modules[module.__name__]


def plain(url: URL, driver: str = "postgresql") -> str:
    return url.set(drivername=driver).render_as_string(hide_password=False)


async def run_python(part: Part, page: str, namespace: dict[str, Any], url: URL) -> None:
    """Run a block so that a traceback names the page and its line."""
    code = PLACEHOLDER.sub(lambda match: plain(url, match[1]), part.code)
    lines = "\n" * (part.line - 1) + code
    compiled = compile(lines, str(ROOT / page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    answer = eval(compiled, namespace)
    if inspect.isawaitable(answer):
        await answer


def run_sql(part: Part, url: URL) -> None:
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute(part.code.encode())


@pytest.mark.parametrize(("page", "way"), [(page, way) for page in pages() for way in ways(page)])
async def test_page_runs(page: str, way: str, page_url: URL, namespace: dict[str, Any]) -> None:
    # Apart, so that no block of the page comes to lean on what only the checks have.
    checks: dict[str, Any] = {"eventually": eventually}
    for part in parts_of(page, way):
        if part.reason is not None:
            continue
        if part.language == "sql":
            run_sql(part, page_url)
        elif part.language == "python":
            await run_python(part, page, namespace, page_url)
        elif part.language == "check":
            checks.update(namespace)
            await run_python(part, page, checks, page_url)


@each("page", pages())
def test_fences_name_a_known_language(page: str) -> None:
    unknown = [(part.line, part.language) for part in parts(page) if part.language not in LANGUAGES | {"check"}]
    assert not unknown, f"{page}: only python and sql are run, and of others only these are known: {sorted(LANGUAGES)}"


@each("page", pages())
def test_tabs_are_those_of_the_two_ways(page: str) -> None:
    assert set(tabs(text_of(page)).values()) <= {FASTSTREAM, WITHOUT}


def test_a_line_is_in_the_tab_above_it_until_the_text_goes_on() -> None:
    page = '=== "FastStream"\n\n    one\n\n=== "Without"\n\n    two\n\nthree\n'
    found = tabs(page)
    assert (found[3], found[7], found.get(9)) == (FASTSTREAM, WITHOUT, None)
