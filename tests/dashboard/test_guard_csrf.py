"""Forms that pages of ours sent, and others."""

from faststream_outbox._internal.dashboard.guard import new_token, refusal
from tests.cases import each
from tests.dashboard.test_auth import request

TOKEN = new_token()
SAME = {"Origin": "http://localhost:8710"}


@each(
    ("headers", "cookie", "given", "is_heard"),
    [
        (SAME, TOKEN, TOKEN, True),
        ({"Sec-Fetch-Site": "same-origin"}, TOKEN, TOKEN, True),
        # Behind a proxy that changes the host, the browser's own comparison decides.
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://ops.example"}, TOKEN, TOKEN, True),
        ({"Sec-Fetch-Site": "cross-site", **SAME}, TOKEN, TOKEN, False),
        ({"Sec-Fetch-Site": "same-site", **SAME}, TOKEN, TOKEN, False),
        ({"Sec-Fetch-Site": "none", **SAME}, TOKEN, TOKEN, False),
        ({"Origin": "http://evil.example"}, TOKEN, TOKEN, False),
        ({"Origin": "http://localhost:9999"}, TOKEN, TOKEN, False),
        ({"Origin": "null"}, TOKEN, TOKEN, False),
        ({}, TOKEN, TOKEN, False),
        (SAME, TOKEN, new_token(), False),
        (SAME, TOKEN, None, False),
        (SAME, None, TOKEN, False),
        (SAME, None, None, False),
        (SAME, "", "", False),
        (SAME, "x", "x", False),
    ],
)
def test_only_forms_of_ours_are_heard(
    headers: dict[str, str], cookie: str | None, given: str | None, is_heard: bool
) -> None:
    assert (refusal(request(headers), cookie, given) is None) is is_heard
