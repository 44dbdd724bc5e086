"""Ways to run an entry that are more than one question: with counters, in a fresh process, in several at once."""

import time
from typing import TYPE_CHECKING

from bench.scenario import Answer, scaled

if TYPE_CHECKING:
    from bench.arena import Arena
    from bench.scenario import Entry

LEAD = 1.0
"""Seconds that several processes have to get ready to begin together."""


def cost(arena: "Arena", entry: "Entry", scale: float) -> Answer | None:
    """A drain, and what the server counted meanwhile, for each message."""
    peer, question = arena.peer(entry.peer), scaled(entry.question, scale)
    messages = question["messages"]
    peer.ask(do="fill", messages=messages)
    peer.ask(do="rest")
    before = arena.spent(entry.peer)
    answer = peer.ask(**question, filled=True)
    peer.ask(do="rest")
    after = arena.spent(entry.peer)
    if answer is None:
        return None
    updates = after.updates - before.updates
    return answer | {
        "wal_bytes": (after.wal_bytes - before.wal_bytes) / messages,
        "wal_records": (after.wal_records - before.wal_records) / messages,
        "transactions": (after.transactions - before.transactions) / messages,
        "hot_share": (after.hot_updates - before.hot_updates) / updates if updates else 1.0,
    }


def fresh(arena: "Arena", entry: "Entry", scale: float) -> Answer | None:
    """In a process that has done nothing before."""
    arena.peer(entry.peer)
    with arena.another(entry.peer) as peer:
        return peer.ask(**scaled(entry.question, scale))


def together(arena: "Arena", entry: "Entry", scale: float) -> Answer | None:
    """Several processes drain one table."""
    question = scaled(entry.question, scale)
    arena.peer(entry.peer).ask(do="fill", messages=question["messages"])
    workers = [arena.another(entry.peer) for _ in range(question["processes"])]
    try:
        for worker in workers:
            worker.ask(do="describe")  # answers when it is ready
        begin = time.time() + LEAD
        for worker in workers:
            worker.put(do="share", settings=question["settings"], begin=begin)
        answers = [worker.answer() or {} for worker in workers]
    finally:
        for worker in workers:
            worker.close()
    handled = sum(answer["handled"] for answer in answers)
    if handled != question["messages"]:
        msg = f"{handled} of {question['messages']} were handled"
        raise RuntimeError(msg)
    return {"rate": handled / (max(answer["last"] for answer in answers) - begin)}
