"""The page on the doctor lists its checks, limits and fields as the code has them."""

from dataclasses import fields

from faststream_outbox._internal.doctor.doctor import CHECKS
from faststream_outbox.doctor import Finding, Limits
from tests.docs.pages import names, rows

PAGE = "docs/doctor.md"


def test_page_lists_every_check_in_order_with_what_it_sees() -> None:
    printed = [(names(row[0])[0], row[1]) for row in rows(PAGE, "## The checks")]
    assert printed == [(check.name, check.sees) for check in CHECKS]


def test_page_says_of_every_check_what_it_costs_and_what_repairs_it() -> None:
    assert [row[0] for row in rows(PAGE, "## The checks") if not row[2].strip() or not row[3].strip()] == []


def test_page_lists_every_limit() -> None:
    assert [names(row[0])[0] for row in rows(PAGE, "## From when on")] == [item.name for item in fields(Limits)]


def test_page_lists_every_field_of_a_finding() -> None:
    assert [names(row[0])[0] for row in rows(PAGE, "## A finding")] == [item.name for item in fields(Finding)]
