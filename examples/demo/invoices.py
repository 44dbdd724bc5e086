"""The demo's second part: events of the orders go to NATS by a relay, and a service with an inbox writes invoices.

One of its processes is killed half-way. Counted from the tables alone, like the account of the shop.
"""

import asyncio
from dataclasses import dataclass

from rich.table import Table
from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from examples.demo.crew import Crew
from examples.demo.until import until
from examples.shop.models import Invoice

_COUNTS = text("""
    select
        (select count(*) from orders) as orders,
        (select count(*) from invoices) as invoices,
        (select count(*) from orders o where not exists (select from invoices i where i.order_id = o.id)) as missing,
        (select count(*) from (select from invoices group by order_id having count(*) > 1) t) as twice
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceAccount:
    """How many orders were invoiced at the far end."""

    orders: int
    invoices: int
    missing: int
    twice: int

    def faults(self) -> list[str]:
        """What does not add up; nothing, if all is well."""
        rules = {
            "every order has an invoice": self.missing == 0,
            "no order has two invoices": self.twice == 0,
            "there are as many invoices as orders": self.invoices == self.orders,
        }
        return [f"not true: {rule}" for rule, holds in rules.items() if not holds]

    def table(self) -> Table:
        """The account, to print."""
        lines = [
            ("orders whose events were relayed", self.orders),
            ("invoices written at the far end", self.invoices),
            ("orders without an invoice", self.missing),
            ("orders with two invoices", self.twice),
        ]
        table = Table(box=None, show_header=False, padding=(0, 2))
        for name, value in lines:
            table.add_row(name, f"[bold]{value}")
        return table


async def invoices(engine: AsyncEngine) -> int:
    """Invoices so far."""
    async with engine.connect() as connection:
        return (await connection.execute(select(func.count()).select_from(Invoice))).scalar_one()


async def take_invoice_account(engine: AsyncEngine) -> InvoiceAccount:
    """Count what the tables say."""
    async with engine.connect() as connection:
        counts = (await connection.execute(_COUNTS)).mappings().one()
    return InvoiceAccount(**counts)


async def relay_and_receive(crew: Crew, engine: AsyncEngine, nats_port: int) -> None:
    """Start NATS, the relay and the service; kill one of its processes; wait until every order has its invoice."""
    total = (await take_invoice_account(engine)).orders

    async def is_half_done() -> bool:
        return await invoices(engine) >= total // 2

    async def is_done() -> bool:
        return (await take_invoice_account(engine)).missing == 0

    await crew.open_nats(nats_port)
    await asyncio.gather(
        crew.hire("relay", "relay"), crew.hire("billing 1", "billing"), crew.hire("billing 2", "billing")
    )
    await until(is_half_done)
    await crew.kill("billing 1")
    await crew.hire("billing 3", "billing")
    await until(is_done)
