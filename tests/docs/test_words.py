"""One word per idea: words that the glossary replaces are on no page, as far as that can be seen from outside."""

import re

from tests.cases import each
from tests.docs.pages import pages, text_of

PAGES = sorted({*pages(), "ARCHITECTURE.md", "CONTRIBUTING.md"})

# The word that is not used, and the one of the glossary.
REPLACED = [
    (r"told|tells?", "emit an event, wake a worker, say"),
    (r"(?:a|one|the|each|such|next|last|regular|first) look", "scan, full scan"),
    (r"looks? from the beginning|between looks", "full scan"),
    (r"aside", "deferred, set apart"),
    (r"is_wet|wet", "may have work"),
    (
        r"(?:a|the|its|free|all|each|more|other|idle|busy) hands?|in hand|change[sd]? hands|hands are",
        "executor, in flight",
    ),
    (r"mend(?:s|ed|ing)?", "repair"),
    (r"pok(?:e|es|ed|ing)", "wake"),
    (r"journals?", "event log"),
    (r"intake", "claim plan"),
    (r"aftermath", "settle listener"),
    (r"tides?", "sequence tracker"),
]
# Names that classes and modules had. As ordinary words they may stand on a page, as code they may not.
FORMER = {"Hand", "Wire", "Through", "Intake", "Holding", "Standing", "Handling", "Taken", "Tide", "Aftermath"}

_FENCE = re.compile(r"^ *```.*?^ *```$|<!-- check:.*?-->", re.DOTALL | re.MULTILINE)
_EVENT = re.compile(r"^\| `[A-Z]\w+` \|.*$", re.MULTILINE)


def prose(page: str) -> str:
    """What a page says in its own words: no code, and no meanings of events, which are the code's."""
    text = _FENCE.sub("", text_of(page))
    return re.sub(r"`[^`\n]+`", "`…`", _EVENT.sub("", text) if page == "docs/events.md" else text)


@each("page", PAGES)
def test_replaced_words_are_on_no_page(page: str) -> None:
    text = " ".join(prose(page).split())
    found = {
        text[max(hit.start() - 30, 0) : hit.end() + 30]: instead
        for pattern, instead in REPLACED
        for hit in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
    }
    assert found == {}


@each("page", PAGES)
def test_former_names_are_on_no_page(page: str) -> None:
    assert FORMER.isdisjoint(re.findall(r"`(\w+)(?:\(.*?\))?`", text_of(page)))


def test_glossary_has_one_sentence_or_two_for_every_word_once() -> None:
    rows = re.findall(r"^\| (\*\*.+?) \| (.+) \|$", text_of("docs/glossary.md"), re.MULTILINE)
    words = [word for cell, _ in rows for word in re.findall(r"\*\*(.+?)\*\*", cell)]
    assert len(words) > 60
    assert sorted(set(words)) == sorted(words)
    assert [cell for cell, meaning in rows if not meaning.endswith(".") or meaning.count(". ") > 1] == []


@each("page", pages())
def test_page_is_not_too_long_to_read(page: str) -> None:
    assert len(text_of(page).splitlines()) <= 450


def test_queues_set_apart_and_only_groups_park() -> None:
    lines = [
        line
        for name in ("events/event_log", "metrics/series")
        for line in text_of(f"faststream_outbox/_internal/{name}.py").splitlines()
    ]
    assert any("is set apart" in line for line in lines)
    assert [line for line in lines if re.search(r"\bpark", line) and "group" not in line.lower()] == []
