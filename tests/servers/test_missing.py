"""A part that is not installed skips a test, and fails it where all parts are required."""

import pytest

from tests.servers.missing import REQUIRE, missing


def test_what_is_missing_is_skipped_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Redis: apt-get install redis-server"):
        missing("no Redis: apt-get install redis-server")


def test_what_is_required_and_missing_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE, "1")
    with pytest.raises(pytest.fail.Exception, match="no Redis: apt-get install redis-server"):
        missing("no Redis: apt-get install redis-server")


def test_what_is_optional_is_skipped_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE, "1")
    with pytest.raises(pytest.skip.Exception, match="no PostgreSQL 15"):
        missing("no PostgreSQL 15: apt-get install postgresql-15", is_optional=True)
