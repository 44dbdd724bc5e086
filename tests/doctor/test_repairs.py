"""What is pasted says what was meant, whatever strangers have named things."""

import psycopg
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import URL

from faststream_outbox._internal.doctor import repairs
from tests.publish.ways import plain

TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=20)


@given(text=TEXTS)
def test_literal_is_one_line_of_what_can_be_seen(text: str) -> None:
    written = repairs.literal(text)
    assert "\n" not in written
    assert "\x1b" not in written


def test_literals_mean_their_text(database_url: URL) -> None:
    texts = [
        "plain",
        "it's",
        "back\\slash",
        "two\nlines",
        "\x1b[31m'; drop table outbox; --\\",
        "\u202e",
        "Ω %s :x {y}",
    ]
    with psycopg.connect(plain(database_url)) as connection:
        found = [connection.execute(f"select {repairs.literal(text)}".encode()).fetchone() for text in texts]
    assert found == [(text,) for text in texts]


def test_names_in_python_are_quoted() -> None:
    assert repairs.delete_group('a"); import os', "u").endswith("""delete('a"); import os', 'u')""")
