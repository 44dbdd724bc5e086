"""The accounts of the examples name their faults."""

from dataclasses import replace
from typing import Any

from examples.demo.account import Account
from examples.demo.customers import Plan
from examples.demo.invoices import InvoiceAccount
from examples.shards.account import Account as ShardAccount
from tests.cases import each

SHOP = Account(
    plan=Plan(attempts=12, declined_every=6, flaky_every=12, cursed_number=4, reminded=(1,)),
    rolled_back=2,
    committed=10,
    receipts=9,
    letters=9,
    reminders=1,
    retried=1,
    taken_over=1,
    dead=1,
    waiting=0,
    lost=0,
    twice=0,
    invented=0,
    reminder_late_ms=3,
)
INVOICES = InvoiceAccount(orders=10, invoices=10, missing=0, twice=0)
SHARD = ShardAccount(
    shard="shard 1",
    wanted=10,
    reported=10,
    refused=3,
    committed=10,
    receipts=10,
    delivered_again=1,
    dead=0,
    waiting=0,
    lost=0,
    twice=0,
    out_of_order=0,
    strangers=0,
)


@each(
    ("good", "change", "faults"),
    [
        (SHOP, {}, []),
        (SHOP, {"committed": 9, "receipts": 8, "letters": 8}, [": every order was committed whose card was good"]),
        (SHOP, {"receipts": 8, "letters": 8}, [": every committed order has a receipt or is a dead letter"]),
        (SHOP, {"letters": 8}, [": every receipt was sent"]),
        (SHOP, {"reminders": 0}, [": every reminder was sent"]),
        (SHOP, {"lost": 1}, [": no message was lost"]),
        (SHOP, {"twice": 1}, [": no message was handled twice"]),
        (SHOP, {"invented": 1}, [": no message of a rolled back order was ever seen"]),
        (SHOP, {"retried": 0}, [": every order that failed once was retried"]),
        (SHOP, {"dead": 2, "receipts": 8, "letters": 8}, [": the cursed order is the only dead letter"]),
        (SHOP, {"waiting": 1}, [": nothing is left in the outbox"]),
        (INVOICES, {}, []),
        (
            INVOICES,
            {"invoices": 9, "missing": 1},
            [": every order has an invoice", ": there are as many invoices as orders"],
        ),
        (
            INVOICES,
            {"invoices": 11, "twice": 1},
            [": no order has two invoices", ": there are as many invoices as orders"],
        ),
        (INVOICES, {"invoices": 11}, [": there are as many invoices as orders"]),
        (SHARD, {}, []),
        (SHARD, {"wanted": 11}, [" of shard 1: every order was placed"]),
        (SHARD, {"reported": 9, "wanted": 9}, [" of shard 1: every order that a customer was told of is there"]),
        (SHARD, {"receipts": 9}, [" of shard 1: every order has a receipt"]),
        (SHARD, {"lost": 1}, [" of shard 1: no message was lost"]),
        (SHARD, {"twice": 1}, [" of shard 1: no message was handled twice"]),
        (SHARD, {"out_of_order": 1}, [" of shard 1: the orders of each customer were handled in order"]),
        (SHARD, {"strangers": 1}, [" of shard 1: every order is in the shard of its customer"]),
        (SHARD, {"dead": 1}, [" of shard 1: there are no dead letters"]),
        (SHARD, {"waiting": 1}, [" of shard 1: nothing is left in the outbox"]),
    ],
)
def test_account_names_its_faults_and_no_others(good: Any, change: dict[str, int], faults: list[str]) -> None:
    assert replace(good, **change).faults() == [f"not true{fault}" for fault in faults]
