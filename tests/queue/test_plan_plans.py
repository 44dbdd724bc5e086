"""The plans of a client: the one place where its claimer, its scanner, its workers and hints meet."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import faststream_outbox._internal.queue as folder
from faststream_outbox._internal.queue import plan as module
from faststream_outbox._internal.queue.asking import Unheard
from faststream_outbox._internal.queue.keys import Horizon
from faststream_outbox._internal.queue.lanes import Lane
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox._internal.queue.plan import FIRST_SCAN_SECONDS, ClaimPlan, Plans
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.queue import DONE, RELEASE, Worker
from tests.queue.claims import claim_of

OPTIONS = WorkerOptions(min_fetch_interval=10.0, max_fetch_interval=10.0)
KEY = ("orders", "key")
ATTRIBUTES = {*Lane.__slots__, *vars(ClaimPlan(["orders"], OPTIONS))}


class Someone(SimpleNamespace):
    """Like a worker, one is not another."""

    __hash__ = object.__hash__


def worker_of(*queues: str, room: int = 1) -> Worker:
    return cast("Worker", Someone(queues=queues, options=OPTIONS, room=room))


def rest(plans: Plans, worker: Worker, now: float) -> ClaimPlan:
    """All that there was is claimed, scanned and dated; both loops wait."""
    plan = plans.open()[worker]
    plan.scanned({}, now, 0.001)
    for lane in plan.lanes.values():
        lane.scanned(None, claim_of().acquired_at, full=False)
        lane.scanned(None, claim_of().acquired_at, full=False)
        lane.ask_due()
    plans.work.clear()
    plans.rest.clear()
    return plan


@pytest.fixture
def plans() -> Plans:
    return Plans(Horizon(), Unheard())


@pytest.fixture
def worker() -> Worker:
    return worker_of("orders")


@pytest.fixture
def resting(plans: Plans, worker: Worker) -> ClaimPlan:
    """The plan of a worker of which everything is known at the time 100."""
    plans.add(worker, 0.0)
    return rest(plans, worker, 100.0)


class TestWorkers:
    def test_a_new_one_wakes_the_claimer_and_waits_for_its_first_scan_but_not_for_long(
        self, plans: Plans, worker: Worker
    ) -> None:
        plans.add(worker, 100.0)
        assert plans.work.is_set()
        assert plans.open()[worker].begins_at == 100.0 + FIRST_SCAN_SECONDS

    def test_one_without_room_and_one_that_has_left_want_nothing(self, plans: Plans, worker: Worker) -> None:
        plans.add(worker_of("orders", room=0), 100.0)
        plans.add(worker, 100.0)
        plans.remove(worker)
        assert not plans.open()

    def test_one_that_comes_again_begins_anew(self, plans: Plans, worker: Worker, resting: ClaimPlan) -> None:
        plans.add(worker, 200.0)
        assert plans.open()[worker] is not resting


def test_a_hint_reaches_every_worker_of_the_queue_and_wakes_the_claimer(
    plans: Plans, worker: Worker, resting: ClaimPlan
) -> None:
    plans.hint(Hint("orders"), 101.0)
    assert plans.open()[worker].with_work(keyed=False)
    assert plans.work.is_set()


class TestSettled:
    def test_frees_its_key_and_asks_for_the_next_of_it(self, plans: Plans, worker: Worker, resting: ClaimPlan) -> None:
        resting.keys.hold(KEY, 1)
        plans.settled(worker, claim_of(), DONE, 101.0)
        assert not resting.keys.is_held(KEY)
        assert list(resting.keys.take(1)) == [KEY]

    def test_has_what_was_given_back_scanned_for(self, plans: Plans, worker: Worker, resting: ClaimPlan) -> None:
        plans.settled(worker, claim_of(), RELEASE, 101.0)
        assert resting.scan_at == max(101.0, resting.earliest_scan)

    def test_of_what_is_done_wakes_the_claimer_and_asks_for_no_scan(
        self, plans: Plans, worker: Worker, resting: ClaimPlan
    ) -> None:
        before = resting.scan_at
        plans.settled(worker, claim_of(), DONE, 101.0)
        assert plans.work.is_set()
        assert resting.scan_at == before

    def test_of_one_that_has_left_is_nothing(self, plans: Plans, worker: Worker) -> None:
        plans.settled(worker, claim_of(), RELEASE, 101.0)
        assert not plans.open()


@pytest.mark.parametrize(
    ("later", "steps", "is_woken"),
    [
        (1.0, lambda plans, plan: None, True),
        (0.0, lambda plans, plan: None, False),
        (None, lambda plans, plan: next(iter(plan.lanes.values())).due_unknown(), True),
        (None, lambda plans, plan: setattr(plans.horizon, "is_wanted", True), True),
    ],
    ids=["a scan is due before", "it wakes in time", "it is not known what falls due", "the horizon is to be read"],
)
def test_who_rests_wakes_the_scanner(
    plans: Plans, resting: ClaimPlan, later: float | None, steps: Callable[[Plans, ClaimPlan], None], is_woken: bool
) -> None:
    plans.scans_at(0.0 if later is None else resting.scan_at + later)
    steps(plans, resting)
    plans.rested(101.0)
    assert plans.rest.is_set() is is_woken


class TestScan:
    def test_is_of_all_whose_scan_would_be_due_soon(self, plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "JITTER", 0.0)
        for name, scanned_at in (("first", 90.0), ("soon", 94.0), ("late", 99.0)):
            worker = worker_of(name)
            plans.add(worker, 0.0)
            rest(plans, worker, scanned_at)
        assert [next(iter(plan.queues)) for plan in plans.due_for_scan(100.0)] == ["first", "soon"]

    def test_can_be_asked_for_by_all(self, plans: Plans, resting: ClaimPlan) -> None:
        plans.ask_scan(105.0)
        assert resting.scan_at == 105.0


def test_strays_are_given_out_once(plans: Plans, resting: ClaimPlan) -> None:
    resting.put_back({1: "orders", 2: "orders", 3: "orders"})
    assert [dict(resting.take_strays(2)), dict(resting.take_strays(2))] == [{1: "orders", 2: "orders"}, {3: "orders"}]


def assigned(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Attributes of something else than `self` that are assigned to, and where."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not is_own:
                yield node.attr, node.lineno


def test_nobody_else_assigns_what_plans_and_lanes_know() -> None:
    files = {path.name: path for path in Path(next(iter(folder.__path__))).glob("*.py")}
    others = [path for name, path in files.items() if name not in ("plan.py", "lanes.py")]
    found = [
        f"{path.name}:{line} {name}"
        for path in others
        for name, line in assigned(ast.parse(path.read_text()))
        if name in ATTRIBUTES
    ]
    assert not found
