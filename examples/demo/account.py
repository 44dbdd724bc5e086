"""The demo's account: what was committed, and what became of it. Counted from the tables alone."""

from dataclasses import dataclass

from rich.table import Table
from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from examples.demo.customers import Plan
from examples.shop.models import Receipt, outbox

_COUNTS = text("""
    with receipt as (
        select order_id, count(*) as times, max(attempt) as attempt, max(delivery) as delivery
        from receipts group by order_id
    ), letter as (
        select order_id, kind, count(*) as times from letters group by order_id, kind
    ), dead as (
        select (convert_from(payload, 'UTF8')::jsonb->>'order_id')::bigint as order_id from outbox_dlq
    )
    select
        (select count(*) from orders) as committed,
        (select count(*) from receipt) as receipts,
        (select count(*) from letter where kind = 'receipt') as letters,
        (select count(*) from letter where kind = 'reminder') as reminders,
        (select count(*) from receipt where attempt > 1) as retried,
        (select count(*) from receipt where delivery > attempt) as taken_over,
        (select count(*) from dead) as dead,
        (select count(*) from outbox) as waiting,
        (select count(*) from orders o
         where not exists (select from receipt r where r.order_id = o.id)
           and not exists (select from dead d where d.order_id = o.id))
        + (select count(*) from receipt r
           where not exists (select from letter l where l.order_id = r.order_id and l.kind = 'receipt')) as lost,
        (select count(*) from receipt where times > 1)
        + (select count(*) from letter where times > 1)
        + (select count(*) from dead d join receipt r using (order_id)) as twice,
        (select count(*) from dead d where not exists (select from orders o where o.id = d.order_id)) as invented,
        (select coalesce(max(extract(epoch from sent_at - due_at) * 1000), 0)::int
         from letters where kind = 'reminder') as reminder_late_ms
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How many orders and messages went which way; `plan` is what the customers set out to do."""

    plan: Plan
    rolled_back: int
    committed: int
    receipts: int
    letters: int
    reminders: int
    retried: int
    taken_over: int
    dead: int
    waiting: int
    lost: int
    twice: int
    invented: int
    reminder_late_ms: int

    def faults(self) -> list[str]:
        """What does not add up; nothing, if all is well."""
        rules = {
            "every order was committed whose card was good": self.committed == self.plan.committed,
            "every committed order has a receipt or is a dead letter": self.committed == self.receipts + self.dead,
            "every receipt was sent": self.letters == self.receipts,
            "every reminder was sent": self.reminders == len(self.plan.reminded),
            "no message was lost": self.lost == 0,
            "no message was handled twice": self.twice == 0,
            "no message of a rolled back order was ever seen": self.invented == 0,
            "every order that failed once was retried": self.retried == self.plan.flaky,
            "the cursed order is the only dead letter": self.dead == self.plan.cursed,
            "nothing is left in the outbox": self.waiting == 0,
        }
        return [f"not true: {rule}" for rule, holds in rules.items() if not holds]

    def table(self) -> Table:
        """The account, to print."""
        lines = [
            ("orders committed", self.committed),
            ("orders rolled back, card declined after publishing", self.rolled_back),
            ("messages handled", self.receipts + self.letters + self.reminders),
            ("  receipts for orders", self.receipts),
            ("    of these retried after an error", self.retried),
            ("    of these taken over from the killed worker", self.taken_over),
            ("  letters with a receipt", self.letters),
            ("  reminders, by timer", self.reminders),
            ("    milliseconds after they were due, at most", self.reminder_late_ms),
            ("dead letters", self.dead),
            ("lost", self.lost),
            ("handled twice", self.twice),
            ("messages of rolled back orders", self.invented),
            ("still in the outbox", self.waiting),
        ]
        table = Table(box=None, show_header=False, padding=(0, 2))
        for name, value in lines:
            table.add_row(name, f"[bold]{value}")
        return table


async def take_account(engine: AsyncEngine, *, rolled_back: int, plan: Plan) -> Account:
    """Count what the tables say."""
    async with engine.connect() as connection:
        counts = (await connection.execute(_COUNTS)).mappings().one()
    return Account(plan=plan, rolled_back=rolled_back, **counts)


async def receipts(engine: AsyncEngine) -> int:
    """Receipts so far."""
    async with engine.connect() as connection:
        return (await connection.execute(select(func.count()).select_from(Receipt))).scalar_one()


async def receipts_of(engine: AsyncEngine, worker: str) -> int:
    """Receipts that this worker has written."""
    query = select(func.count()).select_from(Receipt).where(Receipt.worker == worker)
    async with engine.connect() as connection:
        return (await connection.execute(query)).scalar_one()


async def is_idle(engine: AsyncEngine) -> bool:
    """Whether the outbox is empty."""
    async with engine.connect() as connection:
        return (await connection.execute(select(func.count()).select_from(outbox))).scalar_one() == 0
