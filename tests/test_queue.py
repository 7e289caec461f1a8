"""Every Bundle ends exactly once, heaviest first, whatever dies."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.queue import MAX_UNBEGUN, BundleQueue
from tests.fakes import bundle

ALL = frozenset({"a", "b"})


def test_hands_out_the_heaviest_first() -> None:
    queue = BundleQueue([bundle(2), bundle(8), bundle(4)])
    taken = [queue.take(f"w{index}", "a", ALL) for index in range(4)]
    assert [item.bundle.families[0].h if item else None for item in taken] == [8, 4, 2, None]


def test_equal_ids_are_one_bundle() -> None:
    queue = BundleQueue([bundle(2), bundle(2)])
    assert (queue.total, queue.waiting) == (1, 1)


def test_a_worker_has_one_bundle_at_a_time() -> None:
    queue = BundleQueue([bundle(2), bundle(4)])
    queue.take("w", "a", ALL)
    with pytest.raises(ValueError, match="already has mlp_up-h4"):
        queue.take("w", "a", ALL)


def test_a_lost_bundle_goes_to_another_device_and_then_ends() -> None:
    queue = BundleQueue([bundle(2)])
    queue.take("w0", "a", ALL)
    assert queue.lose("w0") is None
    assert queue.take("w1", "a", ALL) is None
    again = queue.take("w2", "b", ALL)
    assert again is not None
    assert again.attempt == 2
    assert queue.lose("w2") == again
    assert (queue.unfinished, queue.waiting, queue.running) == (0, 0, 0)


def test_a_lost_bundle_goes_back_to_its_device_when_there_is_no_other() -> None:
    queue = BundleQueue([bundle(2)])
    queue.take("w0", "a", ALL)
    queue.lose("w0")
    again = queue.take("w1", "a", frozenset({"a"}))
    assert again is not None
    assert again.attempt == 2


def test_a_late_end_counts_for_nothing() -> None:
    queue = BundleQueue([bundle(2)])
    queue.take("w0", "a", ALL)
    assert queue.finish("w0") is not None
    assert queue.finish("w0") is None
    assert queue.lose("w0") is None
    assert queue.unfinished == 0


def test_at_least_one_attempt() -> None:
    with pytest.raises(ValueError, match="attempts >= 1"):
        BundleQueue([], attempts=0)


def heads(queue: BundleQueue, worker: str, most: int) -> list[int | None]:
    return [item.bundle.families[0].h for item in queue.behind(worker, most)]


def test_a_worker_may_have_others_behind_the_one_it_is_at() -> None:
    queue = BundleQueue([bundle(h) for h in (2, 4, 6, 8)])
    first = queue.take("w", "a", ALL, canary=3)
    assert first is not None
    assert heads(queue, "w", 2) == [6, 4]
    assert (queue.held("w"), queue.running, queue.waiting) == (3, 3, 1)
    assert queue.finish("w") == first
    second = queue.assigned("w")
    assert second is not None
    assert (second.bundle_id, second.device, second.canary, second.attempt) == (bundle(6).bundle_id, "a", 3, 1)


def test_who_is_lost_with_several_is_blamed_for_the_one_it_was_at() -> None:
    queue = BundleQueue([bundle(h) for h in (2, 4, 6)])
    queue.take("w", "a", ALL)
    queue.behind("w", 5)
    assert queue.lose("w") is None
    assert (queue.waiting, queue.again, queue.running) == (3, 3, 0)
    taken = [queue.take(f"w{number}", "b", ALL) for number in range(3)]
    assert [(item.bundle_id, item.care.one_by_one, item.care.last, item.attempt) for item in taken if item] == [
        (bundle(6).bundle_id, True, True, 2),
        (bundle(4).bundle_id, False, False, 2),
        (bundle(2).bundle_id, False, False, 2),
    ]


def test_nothing_goes_behind_a_bundle_that_was_put_back() -> None:
    queue = BundleQueue([bundle(h) for h in (2, 4, 6)])
    queue.take("w", "a", ALL)
    queue.give_back("w")
    again = queue.take("w", "a", ALL)
    assert again is not None
    assert (again.bundle_id, again.care.last) == (bundle(6).bundle_id, False)
    assert heads(queue, "w", 2) == []
    assert queue.waiting == 2


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.data())
def test_every_bundle_ends_exactly_once(count: int, devices: int, attempts: int, data: st.DataObject) -> None:
    queue = BundleQueue([bundle(h) for h in range(1, count + 1)], attempts=attempts)
    alive = frozenset(f"d{index}" for index in range(devices))
    ends: Counter[str] = Counter()
    tries: Counter[str] = Counter()
    workers: dict[str, str] = {}  # device -> worker that has something
    for step in range(count * attempts * 4):
        device = data.draw(st.sampled_from(sorted(alive)))
        worker = workers.pop(device, None)
        if worker is None:
            taken = queue.take(f"w{step}", device, alive)
            if taken is not None:
                workers[device] = f"w{step}"
                tries[taken.bundle_id] += 1
                assert taken.attempt == tries[taken.bundle_id] <= attempts
            continue
        ended = queue.lose(worker) if data.draw(st.booleans()) else queue.finish(worker)
        ends.update([ended.bundle_id] if ended else [])
        assert queue.waiting + queue.running == queue.unfinished == count - len(ends)
    for device in sorted(alive) * (count * attempts + 1):  # nobody dies any more
        if worker := workers.pop(device, None):
            ended = queue.finish(worker)
            assert ended is not None
            ends[ended.bundle_id] += 1
        if queue.take("last-" + device, device, alive):
            workers[device] = "last-" + device
    assert queue.unfinished == 0
    assert ends == {bundle(h).bundle_id: 1 for h in range(1, count + 1)}


def test_an_attempt_that_never_began_is_not_the_bundles_fault() -> None:
    queue = BundleQueue([bundle(2)])
    for index in range(MAX_UNBEGUN):
        queue.take(f"dead{index}", "a", ALL)
        assert queue.lose(f"dead{index}", began=False) is None
    first = queue.take("w1", "a", ALL)
    assert first is not None
    assert (first.attempt, first.care.last, first.care.one_by_one) == (MAX_UNBEGUN + 1, False, False)
    assert queue.lose("w1", began=False) is None  # from now on it counts
    second = queue.take("w2", "b", ALL)
    assert second is not None
    assert second.care.last
    assert queue.lose("w2") == second
    assert queue.unfinished == 0
