"""Topic dispatch: a short log and a long one, read to their end by a handler that does nothing.

`bench.scenarios` puts them into the report.
"""

from bench.scenario import Entry, Scenario

SMALL, LARGE = 20_000, 1_000_000
NOTE = (
    "The handler does nothing. The log is written beforehand, in one transaction, and sequenced. "
    "Bare asyncpg reads the same table by position and moves a cursor after each batch: no leases, no order among "
    "transactions, no message objects."
)


def _dispatch(messages: int) -> tuple[Entry, ...]:
    def entry(label: str, how: str, by: int) -> Entry:
        question = {"do": "dispatch", "how": how, "messages": messages, "by": by}
        return Entry(peer="topics", label=label, question=question, is_limit=how == "by hand")

    return (
        entry("ours by 1,000", "dispatch", 1000),
        entry("ours by 100", "dispatch", 100),
        entry("bare asyncpg by 1,000", "by hand", 1000),
    )


SCENARIOS = (
    Scenario(
        name="dispatch-small",
        title="Topic dispatch: a log of 20,000 messages",
        entries=_dispatch(SMALL),
        note=NOTE,
    ),
    Scenario(
        name="dispatch-large",
        title="Topic dispatch: a log of 1,000,000 messages",
        entries=_dispatch(LARGE),
        note=NOTE,
        rounds=2,
    ),
)
