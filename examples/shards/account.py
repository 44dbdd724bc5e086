"""The account of a shard: what customers were told, and what became of it. Counted from its tables alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from sqlalchemy import func, select, text

from examples.shards.customers import Customers
from examples.shards.models import Receipt, outbox
from examples.shards.shards import Shard

_COUNTS = text("""
    with receipt as (
        select customer, number, count(*) as times, max(delivery) as delivery from receipts group by customer, number
    )
    select
        (select count(*) from orders) as committed,
        (select count(*) from receipt) as receipts,
        (select count(*) from receipt where delivery > 1) as delivered_again,
        (select count(*) from outbox_dlq) as dead,
        (select count(*) from outbox) as waiting,
        (select count(*) from orders o
         where not exists (select from receipt r where (r.customer, r.number) = (o.customer, o.number))) as lost,
        (select count(*) from receipt where times > 1) as twice,
        (select count(*) from (
             select number, lag(number) over (partition by customer order by id) as before from receipts
         ) r where r.before > r.number) as out_of_order,
        (select count(*) from orders where customer <> all (:customers)) as strangers
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How many orders and messages of a shard went which way."""

    shard: str
    wanted: int
    reported: int
    refused: int
    committed: int
    receipts: int
    delivered_again: int
    dead: int
    waiting: int
    lost: int
    twice: int
    out_of_order: int
    strangers: int

    def faults(self) -> list[str]:
        """What does not add up; nothing, if all is well."""
        rules = {
            "every order was placed": self.reported == self.wanted,
            "every order that a customer was told of is there": self.committed == self.reported,
            "every order has a receipt": self.receipts == self.committed,
            "no message was lost": self.lost == 0,
            "no message was handled twice": self.twice == 0,
            "the orders of each customer were handled in order": self.out_of_order == 0,
            "every order is in the shard of its customer": self.strangers == 0,
            "there are no dead letters": self.dead == 0,
            "nothing is left in the outbox": self.waiting == 0,
        }
        return [f"not true of {self.shard}: {rule}" for rule, holds in rules.items() if not holds]


LINES = {
    "orders committed": "committed",
    "tries that were refused": "refused",
    "orders handled": "receipts",
    "  of these delivered more than once": "delivered_again",
    "dead letters": "dead",
    "lost": "lost",
    "handled twice": "twice",
    "handled out of order": "out_of_order",
    "in the wrong shard": "strangers",
    "still in the outbox": "waiting",
}


def table(accounts: Sequence[Account]) -> Table:
    """The accounts side by side, to print."""
    made = Table("", *(account.shard for account in accounts), box=None, padding=(0, 2))
    for line, name in LINES.items():
        made.add_row(line, *(f"[bold]{getattr(account, name)}" for account in accounts))
    return made


async def take_account(shard: Shard, customers: Customers) -> Account:
    """Count what the tables of a shard say."""
    own = [customer for customer, home in customers.home.items() if home == shard.name]
    async with shard.engine.connect() as connection:
        counts = (await connection.execute(_COUNTS, {"customers": own})).mappings().one()
    return Account(
        shard=shard.name,
        wanted=customers.wanted(shard),
        reported=customers.placed[shard.name],
        refused=customers.refused[shard.name],
        **counts,
    )


async def receipts(shard: Shard) -> int:
    """Receipts so far."""
    async with shard.engine.connect() as connection:
        return (await connection.execute(select(func.count()).select_from(Receipt))).scalar_one()


async def is_idle(shard: Shard) -> bool:
    """Whether the outbox of a shard is empty."""
    async with shard.engine.connect() as connection:
        return (await connection.execute(select(func.count()).select_from(outbox))).scalar_one() == 0
