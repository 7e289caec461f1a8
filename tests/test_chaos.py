"""The laws of a sweep, whatever goes wrong: every Bundle ends once, none runs twice at once, and the run ends."""

import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.canaries import Canaries
from orchestrator.canary import canary_bundle
from orchestrator.dispatch import DRAIN_S, Dispatcher
from orchestrator.lanes import Lanes
from orchestrator.pace import CALL_S, MOST, Pace
from orchestrator.progress import Board
from tasks.family import Bundle
from tasks.records import DeviceInfo
from tests.chaos import Book, ChaosEngine, Odds
from tests.fakes import FakeClock, bundle, device_info
from tests.test_progress import Silent

H200, L40S = "NVIDIA H200", "NVIDIA L40S"
DEADLINE_S = 60.0


class CountingBoard(Board):
    """Counts Bundles that are measured again."""

    again: Counter[str]

    def reopened(self, bundles: Iterable[Bundle]) -> None:
        known = list(bundles)
        self.again.update(item.bundle_id for item in known)
        super().reopened(known)


class Sweep:
    """A Dispatcher amid chaos, and what came of it."""

    def __init__(
        self,
        nodes: dict[str, list[DeviceInfo]],
        odds: Odds,
        bundles: int,
        seed: int = 0,
        *,
        placement: str = "split",
        stop_at: float = float("inf"),
        start_timeout_s: float = 60.0,
        call_s: float = CALL_S,
    ) -> None:
        self.work = [bundle(h) for h in range(1, bundles + 1)]
        self.clock = FakeClock()
        self.engine = ChaosEngine(nodes, odds, seed, self.clock, placement)
        self.book = Book()
        self.view = Silent()
        self.board = CountingBoard(self.work, self.view, self.clock)
        self.board.again = Counter()
        self.opened = 0
        self.dispatcher = Dispatcher(
            engine=self.engine,
            recorder=self.book,
            board=self.board,
            lanes=Lanes(self.work, placement, on_open=self._opened),
            canaries=Canaries(lambda: canary_bundle("fp16"), 4),
            accepts=lambda device: True,
            clock=self.clock,
            deadline_s=lambda bundle, device: DEADLINE_S,
            every_device=placement == "replicate" or len({d.gpu for node in nodes.values() for d in node}) > 1,
            start_timeout_s=start_timeout_s,
            stop=lambda: self.clock.now >= stop_at,
            pace=Pace(call_s=call_s),
        )
        self.problem = self.dispatcher.run()

    def _opened(self, bundles: list[Bundle]) -> None:
        self.opened += 1
        self.board.expect(bundles)

    def check(self) -> None:
        """Every Bundle ended once for each lane, and once more for each time that it was taken back; or why not."""
        assert self.engine.workers == {}
        dropped = Counter(note.partition(":")[0] for note in self.view.notes if "no other device" in note)
        for item in self.work:
            ends = self.book.ends[item.bundle_id] - self.board.again[item.bundle_id] + dropped[item.bundle_id]
            assert ends <= self.opened
            if not self.problem and not self.dispatcher.stop():
                assert ends == self.opened, (item.bundle_id, ends)
        if not self.problem and not self.dispatcher.stop():
            assert self.dispatcher.lanes.unfinished == 0
        numbers = Counter((item.bundle_id, item.attempt, item.device) for item in self.engine.submitted)
        assert set(numbers.values()) <= {1}


def nodes(*sizes: int, gpu: str = H200) -> dict[str, list[DeviceInfo]]:
    return {f"{gpu[-4:]}-{n}": [device_info(f"{gpu[-4:]}-{n}-{i}", gpu) for i in range(s)] for n, s in enumerate(sizes)}


chances = st.sampled_from([0.0, 0.01, 0.1, 0.5])


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    others=st.lists(st.integers(1, 3), max_size=2),
    bundles=st.integers(1, 30),
    dies=chances,
    hangs=st.sampled_from([0.0, 0.05, 0.3]),
    spoilt=chances,
    start_fails=st.sampled_from([0.0, 0.1, 1.0]),
    open_hangs=st.sampled_from([0.0, 0.0, 0.2]),
    placement=st.sampled_from(["split", "replicate"]),
    slow=st.integers(0, 3),
    moves=st.integers(0, 3),
    notice_s=st.sampled_from([0.0, 3.0]),
    poisoned=st.integers(0, 2),
    stop_at=st.sampled_from([float("inf")] * 3 + [5.0]),
    call_s=st.sampled_from([CALL_S, 10.0, 100.0]),
)
def test_every_bundle_ends_once_or_the_run_says_why(
    seed: int,
    sizes: list[int],
    others: list[int],
    bundles: int,
    dies: float,
    hangs: float,
    spoilt: float,
    start_fails: float,
    open_hangs: float,
    placement: str,
    slow: int,
    moves: int,
    notice_s: float,
    poisoned: int,
    stop_at: float,
    call_s: float,
) -> None:
    chance = random.Random(seed)
    fleet = {**nodes(*sizes), **nodes(*others, gpu=L40S)}
    uuids = [device.uuid for node in fleet.values() for device in node]
    odds = Odds(
        dies=dies,
        hangs=hangs,
        spoilt=spoilt,
        start_fails=start_fails,
        open_hangs=open_hangs,
        oom=dies,
        poison=frozenset(bundle(chance.randint(1, bundles)).gemms[-1].gemm_id for _ in range(poisoned)),
        slow_from={chance.choice(uuids): 20 * chance.random() for _ in range(slow)},
        joins={chance.choice(list(fleet)): 20 * chance.random() for _ in range(moves // 2)},
        leaves={chance.choice(list(fleet)): 40 * chance.random() for _ in range(moves)},
        notice_s=notice_s,
    )
    Sweep(fleet, odds, bundles, seed, placement=placement, stop_at=stop_at, call_s=call_s).check()


def test_where_all_devices_of_one_model_are_gone_the_rest_is_measured_and_the_run_says_so() -> None:
    fleet = {**nodes(2), **nodes(2, gpu=L40S)}
    sweep = Sweep(fleet, Odds(leaves={"L40S-0": 5.0}), 20)
    sweep.check()
    assert "NVIDIA L40S" in sweep.problem
    assert "NVIDIA H200" not in sweep.problem
    h200 = {item.bundle_id for item in sweep.engine.submitted if "H200" in item.device and not item.is_canary}
    assert h200 == {item.bundle_id for item in sweep.work}
    assert sweep.dispatcher.lanes.unfinished > 0


def test_a_replicated_sweep_ends_where_a_device_never_comes_back() -> None:
    sweep = Sweep(nodes(2, 1), Odds(leaves={"H200-1": 5.0}), 10, placement="replicate")
    sweep.check()
    assert "GPU-fake-H200-1-0" in sweep.problem
    assert sweep.clock.now < 120


def test_a_device_that_never_opens_does_not_keep_a_finished_sweep_waiting() -> None:
    sweep = Sweep({**nodes(2), **nodes(1, gpu=L40S)}, Odds(open_hangs=0.3), 5, seed=3, start_timeout_s=30.0)
    sweep.check()
    assert sweep.clock.now < 300


def test_where_all_good_devices_die_and_only_a_bad_one_is_left_the_run_ends_and_says_so() -> None:
    odds = Odds(slow_from={"GPU-fake-H200-0-0": 4.0}, leaves={"H200-1": 30.0})
    sweep = Sweep(nodes(1, 3), odds, 60, start_timeout_s=30.0)
    sweep.check()
    assert sweep.problem.startswith("only devices are left that their canaries show to be bad")
    assert "GPU-fake-H200-0-0: took 2" in sweep.problem or "GPU-fake-H200-0-0: took 3" in sweep.problem
    assert sweep.dispatcher.lanes.unfinished > 0


@pytest.mark.parametrize("call_s", [CALL_S, 100.0])
@pytest.mark.parametrize("seed", range(60))
def test_a_node_that_goes_with_idle_workers_costs_no_bundle(seed: int, call_s: float) -> None:
    # Its last Bundle must not be given to its dead idle neighbours, one after the other, until it is given up.
    odds = Odds(leaves={"H200-0": 3.0 + seed / 20}, notice_s=seed % 3 * 2.0)
    sweep = Sweep(nodes(8, 1), odds, 18, seed, call_s=call_s)
    sweep.check()
    assert (sweep.problem, sweep.book.failed) == ("", {})


@pytest.mark.parametrize("seed", range(20))
def test_a_deadly_bundle_takes_down_its_call_and_no_other_bundle_is_blamed(seed: int) -> None:
    deadly = bundle(30)
    odds = Odds(poison=frozenset(gemm.gemm_id for gemm in deadly.gemms))
    sweep = Sweep(nodes(2, 2), odds, 60, seed, call_s=100.0)
    sweep.check()
    assert max(Counter(item.worker for item in sweep.engine.submitted).values()) > 8
    assert sweep.book.failed == {deadly.bundle_id: 1}
    assert {item.bundle_id for item in sweep.engine.submitted if item.care.one_by_one} == {deadly.bundle_id}
    again = {item.bundle_id for item in sweep.engine.submitted if item.attempt > 1 and not item.is_canary}
    assert len(again) <= MOST


@pytest.mark.parametrize("call_s", [CALL_S, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_an_interrupted_sweep_ends_in_time(seed: int, call_s: float) -> None:
    sweep = Sweep(nodes(3), Odds(hangs=0.3), 50, seed, stop_at=8.0, call_s=call_s)
    sweep.check()
    assert sweep.clock.now <= 8 + DRAIN_S + 1
