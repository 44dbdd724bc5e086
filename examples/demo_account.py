"""The demo's account: what was committed, and what became of it. Counted from the tables alone."""

from dataclasses import dataclass

from rich.table import Table
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

_COUNTS = text("""
    with receipt as (
        select order_id, count(*) as times, max(attempt) as attempt, max(delivery) as delivery
        from receipts where queue = 'orders' group by order_id
    ), dead as (
        select (headers->>'order')::bigint as order_id from outbox_dlq where queue = 'orders'
    )
    select
        (select count(*) from orders) as committed,
        (select count(*) from receipt) as handled,
        (select count(*) from receipt where attempt > 1) as retried,
        (select count(*) from receipt where delivery > attempt) as taken_over,
        (select count(*) from dead) as dead,
        (select count(*) from outbox) as waiting,
        (select count(*) from orders o
         where not exists (select from receipt r where r.order_id = o.id)
           and not exists (select from dead d where d.order_id = o.id)) as lost,
        (select count(*) from receipt where times > 1)
        + (select count(*) from dead d join receipt r using (order_id)) as twice,
        (select count(*) from (select order_id from receipt union all select order_id from dead) m
         where not exists (select from orders o where o.id = m.order_id)) as invented,
        (select count(*) from receipts where queue = 'reminders') as timers,
        (select coalesce(max(extract(epoch from handled_at - due_at) * 1000), 0)::int
         from receipts where queue = 'reminders') as timer_late_ms
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How many orders went which way; `expected_*` is what the demo set out to do."""

    rolled_back: int
    expected_retried: int
    committed: int
    handled: int
    retried: int
    taken_over: int
    dead: int
    waiting: int
    lost: int
    twice: int
    invented: int
    timers: int
    timer_late_ms: int

    def faults(self) -> list[str]:
        """What does not add up; nothing, if all is well."""
        rules = {
            "every committed order was handled or is a dead letter": self.committed == self.handled + self.dead,
            "no order was lost": self.lost == 0,
            "no order was handled twice": self.twice == 0,
            "no message of a rolled back order was ever seen": self.invented == 0,
            "every order that failed once was retried": self.retried == self.expected_retried,
            "the poison order is the only dead letter": self.dead == 1,
            "the timer fired once": self.timers == 1,
            "nothing is left in the outbox": self.waiting == 0,
        }
        return [f"not true: {rule}" for rule, holds in rules.items() if not holds]

    def table(self) -> Table:
        """The account, to print."""
        lines = [
            ("orders committed", self.committed),
            ("orders rolled back", self.rolled_back),
            ("handled", self.handled),
            ("  of these retried after an error", self.retried),
            ("  of these taken over from the killed worker", self.taken_over),
            ("dead letters", self.dead),
            ("lost", self.lost),
            ("handled twice", self.twice),
            ("messages of rolled back orders", self.invented),
            ("still in the outbox", self.waiting),
            ("timers fired", self.timers),
            ("  milliseconds after it was due", self.timer_late_ms),
        ]
        table = Table(box=None, show_header=False, padding=(0, 2))
        for name, value in lines:
            table.add_row(name, f"[bold]{value}")
        return table


async def take_account(engine: AsyncEngine, *, rolled_back: int, expected_retried: int) -> Account:
    """Count what the tables say."""
    async with engine.connect() as connection:
        counts = (await connection.execute(_COUNTS)).mappings().one()
    return Account(rolled_back=rolled_back, expected_retried=expected_retried, **counts)
