"""Forms with fields of every kind: no error of the dashboard's own, no echo as HTML, no change where it refuses.

The forms are those that the dashboard has: one more is tried by itself.
"""

from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from faststream_outbox._internal.dashboard.screens import FORMS
from tests.cases import case
from tests.dashboard.place import Place
from tests.dashboard.promises.test_addresses import ECHO, VALUES
from tests.dashboard.visitor import FORM, Visitor

pytestmark = pytest.mark.slow

HOSTILE = [*VALUES, "'; drop table outbox; --", "a\nb", "1:1", "yes", "9999-12-31T23:59-23:59", "{", '{"a": NaN}']
FIELDS = [
    "queue", "timer_id", "group", "uri", "position", "tick", "to", "moment", "event_id", "typed", "force", "all",
    "letter", "body", "headers", "version", "then", "newest", "count", "pace", "rate", "run", "ids", "key", "reason",
    "error_type", "since", "until", "back", "csrf", "q", "name",
]  # fmt: skip
KNOWN = [
    "orders", "billing", "invoices", "reminder-7", "1", "earliest", "moment", "event_id", "cursor", "ramp", "replay",
]  # fmt: skip


class Desk:
    """A visitor, and what the tables hold."""

    def __init__(self, place: Place, visitor: Visitor, token: str) -> None:
        self._place, self._visitor, self._token = place, visitor, token
        tables = [place.table, place.dlq_table, *place.log_tables.all]
        self.escaped = self.refused = 0
        """How often a page had the mark in it, as text, and how often a form was refused."""
        self._tables = [table.name for table in tables if not table.name.endswith("_members")]

    async def content(self) -> list[Any]:
        """What is in every table."""
        asked = " union all ".join(
            f"select '{name}', md5(coalesce(string_agg(t::text, '' order by t::text), '')) from {name} t"
            for name in self._tables
        )
        async with self._place.engine.connect() as connection:
            return sorted(map(tuple, await connection.execute(text(asked))))

    async def send(self, path: str, fields: list[tuple[str, str]]) -> None:
        """Send a form, with the token unless the fields have another one."""
        before = await self.content()
        # Counts that are right let a replay begin, which goes on by itself.
        sent = [("csrf", self._token), *fields, *([("count", "x")] if path.startswith("/replay/") else [])]
        content = urlencode(sent, errors="surrogatepass").encode()
        answer = await self._visitor.client.post(path, content=content, headers=FORM)
        assert answer.status_code < 500, answer.text[-500:]
        is_refused = answer.status_code >= 400
        if answer.status_code == 303:
            to = answer.headers["location"]
            assert to.startswith("/"), to
            assert not to.startswith(("//", "/\\")), to
            answer = await self._visitor.client.get(to)
            is_refused = 'class="flash bad-notice"' in answer.text
        assert ECHO not in answer.text
        self.escaped += answer.text.count("&lt;b id=echo&gt;")
        if is_refused:
            self.refused += 1
            assert await self.content() == before, answer.text[-500:]


@pytest.fixture
async def desk(place: Place, visitor: Visitor) -> Desk:
    return Desk(place, visitor, await visitor.token())


async def test_fields_of_every_form_may_be_anything(place: Place, desk: Desk) -> None:
    said, where = place.words, {"position": str(place.parked_position), "letter": str(place.letter_id)}
    good = {"queue": said.queue, "group": said.group, "uri": said.uri, "timer_id": said.timer_id, **where}
    for path in FORMS:
        for value in HOSTILE:
            with case((path, value)):
                await desk.send(path, [(name, value) for name in FIELDS if name != "csrf"])
                await desk.send(path, [*({**good, "typed": value, "to": value, "moment": value}).items()])
    assert desk.escaped
    assert desk.refused


ANY = st.sampled_from(HOSTILE) | st.sampled_from(KNOWN) | st.text(max_size=20) | st.integers().map(str)
GIVEN = st.lists(st.tuples(st.sampled_from(FIELDS) | st.text(max_size=5), ANY), max_size=8)
EACH = {"suppress_health_check": [HealthCheck.function_scoped_fixture]}


@settings(max_examples=30, **EACH)
@given(path=st.sampled_from(sorted(FORMS)), fields=GIVEN)
async def test_any_form_is_answered(desk: Desk, path: str, fields: list[tuple[str, str]]) -> None:
    await desk.send(path, fields)


@pytest.mark.soak
@settings(max_examples=3000, derandomize=False, **EACH)
@given(path=st.sampled_from(sorted(FORMS)), fields=GIVEN)
async def test_any_form_is_answered_at_length(desk: Desk, path: str, fields: list[tuple[str, str]]) -> None:
    await desk.send(path, fields)


RAW = [b"", b"&&&", b"=", b"%", b"%zz", b"\xff\xfe", b"queue=%ff", b"queue=%00", b"{}"]
RAW += [b"a" * 3_000_000, b"a=1&" * 100_000]
TYPES = [FORM["content-type"], "application/json", "multipart/form-data", "text/plain", "", "x; charset=y"]


async def test_bodies_that_are_no_form_are_refused(visitor: Visitor, desk: Desk) -> None:
    before = await desk.content()
    for path in FORMS:
        for kind in TYPES:
            for body in RAW:
                with case((path, kind, body[:20])):
                    answer = await visitor.client.post(path, content=body, headers={**FORM, "content-type": kind})
                    assert 400 <= answer.status_code < 500
    assert await desk.content() == before
