"""Who is let in: basic and bearer auth, and the one-time token of this machine."""

import base64
from collections.abc import Mapping

import pytest
from starlette.requests import Request

from faststream_outbox._internal.dashboard.auth import OneTimeToken, is_loopback, name_of
from faststream_outbox.dashboard import BasicAuth, BearerAuth, User
from faststream_outbox.errors import InvalidOption
from tests.cases import each

PASSWORD = "correct horse"
TOKEN = "a-token-of-some-length"


def request(
    headers: Mapping[str, str] | None = None, *, client: str = "127.0.0.1", host: str = "localhost:8710"
) -> Request:
    given = {"host": host} | dict(headers or {})
    raw = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    return Request(
        {
            "type": "http",
            "method": "GET",
            "scheme": "http",
            "path": "/",
            "query_string": b"",
            "headers": raw,
            "client": (client, 5000),
            "server": ("127.0.0.1", 8710),
        }
    )


def basic(text: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


@each(
    ("headers", "found"),
    [
        (basic(f"ada:{PASSWORD}"), User("ada")),
        (basic("ada:wrong"), None),
        (basic("ada:"), None),
        (basic(f"bob:{PASSWORD}"), None),
        (basic("ada"), None),
        ({}, None),
        ({"Authorization": "Basic"}, None),
        ({"Authorization": "Basic ===="}, None),
        ({"Authorization": "Basic /////w=="}, None),
        ({"Authorization": f"Bearer {PASSWORD}"}, None),
    ],
)
def test_basic_auth_knows_its_users(headers: dict[str, str], found: User | None) -> None:
    assert BasicAuth({"ada": PASSWORD})(request(headers)) == found


@each(
    ("headers", "found"),
    [
        ({"Authorization": f"Bearer {TOKEN}"}, User("ci")),
        ({"Authorization": f"bearer {TOKEN}"}, User("ci")),
        ({"Authorization": "Bearer another-token-there"}, None),
        ({"Authorization": f"Basic {TOKEN}"}, None),
        ({"Authorization": "Bearer "}, None),
        ({}, None),
    ],
)
def test_bearer_auth_knows_its_tokens(headers: dict[str, str], found: User | None) -> None:
    assert BearerAuth({TOKEN: "ci", "one-more-token": "cd"})(request(headers)) == found


@each(
    "make",
    [
        lambda: BasicAuth({}),
        lambda: BasicAuth({"ada": "short"}),
        lambda: BasicAuth({"ada": PASSWORD}, realm='a"b'),
        lambda: BearerAuth({}),
        lambda: BearerAuth({"short": "ci"}),
    ],
)
def test_secrets_that_anybody_would_guess_are_refused(make: object) -> None:
    with pytest.raises(InvalidOption):
        make()  # type: ignore[operator]


@each(
    ("user", "name"),
    [
        ("ada", "ada"),
        (User("ada"), "ada"),
        (type("Who", (), {"email": "ada@example.com"})(), "ada@example.com"),
        (7, "7"),
    ],
)
def test_every_user_has_a_name(user: object, name: str) -> None:
    assert name_of(user) == name


@each(
    ("host", "is_here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        (None, False),
    ],
)
def test_loopback_is_this_machine_only(host: str | None, is_here: bool) -> None:
    assert is_loopback(host) is is_here


def test_session_that_was_not_given_out_is_nobody() -> None:
    auth = OneTimeToken()
    assert auth.user(None) is None
    assert auth.user(auth.token) is None
    assert auth.exchange("x" * 43) is None


@each(
    ("headers", "client", "host"),
    [
        ({}, "192.0.2.7", "localhost:8710"),
        ({}, "127.0.0.1", "evil.example"),
        ({}, "127.0.0.1", "127.0.0.1.evil.example:8710"),
        ({"X-Forwarded-For": "192.0.2.7"}, "127.0.0.1", "localhost:8710"),
        ({"Forwarded": "for=192.0.2.7"}, "127.0.0.1", "localhost:8710"),
    ],
)
def test_token_is_for_this_machine_only(headers: dict[str, str], client: str, host: str) -> None:
    assert OneTimeToken().refusal(request(headers, client=client, host=host)) is not None


def test_address_is_logged_once_for_a_token(caplog: pytest.LogCaptureFixture) -> None:
    auth = OneTimeToken()
    auth.announce(request())
    auth.announce(request())
    (record,) = caplog.records
    assert f"http://localhost:8710/?token={auth.token}" in record.getMessage()
