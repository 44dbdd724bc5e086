"""Whatever the address and the fields of a request are, the dashboard answers, and never with an error of its own."""

from urllib.parse import quote

import httpx
import pytest

from tests.cases import case
from tests.dashboard.place import Place
from tests.dashboard.promises.test_screens import every_page
from tests.dashboard.visitor import Visitor

pytestmark = pytest.mark.slow

VALUES = ["", "0", "-1", str(2**63), str(2**200), "1e5", "nan", "\x00", "a\x00b", "\u202e\x1b]0;x\x07", "x" * 5000]
VALUES += ["'\"%s:x{y}\\", "ł漢", "%", "null", "[]", "../..", "$paused", "0044-03-15 BC", "-infinity", "٣"]
VALUES += ["<b id=echo>'\"&"]
ECHO = "<b id=echo>"
RAW = ["%ff", "%00", "%ED%A0%80", "%", "%zz", "a&a&a", "=", "&&&", "a[]=1", "+"]
PATHS = ["/%00", "/../../etc/passwd", "/static/../../dashboard.py", "/static/%2e%2e/page.py", "//", "/%ff", "/queue/x"]
PATHS += ["/static/", "/static/vendor/", "/" + "x" * 5000, "/.env", "/queues;x=1", "/\u202e"]


def answered(answer: httpx.Response) -> None:
    """Whether it is an answer: a page without an echo, a redirect, or a refusal."""
    assert answer.status_code < 500, answer.text[-500:]
    assert ECHO not in answer.text


async def test_fields_of_any_kind_are_answered(place: Place, visitor: Visitor) -> None:
    for path, fields in every_page(place):
        for name in fields or ["q"]:
            for value in VALUES:
                with case((path, name, value)):
                    answered(await visitor.get(path, **{**fields, name: value}))


async def test_what_is_no_field_is_answered(place: Place, visitor: Visitor) -> None:
    for path in sorted({path for path, _ in every_page(place)}):
        for raw in RAW:
            for query in (f"name={raw}&queue={raw}&group={raw}&uri={raw}&id={raw}&letter={raw}", raw):
                with case((path, query)):
                    answered(await visitor.client.get(f"{path}?{query}"))


async def test_paths_of_any_kind_are_answered(visitor: Visitor) -> None:
    for path in PATHS:
        with case(path):
            answer = await visitor.client.get(quote(path, safe="/%;="))
            assert answer.status_code in (200, 303, 307, 400, 404, 405)
            assert "root:" not in answer.text
