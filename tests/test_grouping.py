"""Which rows are equal, and which Families are measured together, against plain sets."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.grouping import grouped, hosted, keys
from orchestrator.lazy import Lazy

size = st.sampled_from([1, 2, 3, 2**20, 2**40, 2**61])
rows_of_four = st.lists(st.tuples(size, size, size, size), min_size=1, max_size=12)
families = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=1, max_size=8)


@given(rows_of_four)
def test_keys_are_equal_exactly_for_equal_rows(rows: list[tuple[int, ...]]) -> None:
    # four columns of 2^61 do not fit into one number: they are numbered on the way
    found = keys(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)).tolist()
    assert [[a == b for b in found] for a in found] == [[a == b for b in rows] for a in rows]


@given(families)
def test_families_are_grouped_as_their_sets_are(gemms: list[list[int]]) -> None:
    key = np.array([gemm for each in gemms for gemm in each])
    owners = np.repeat(np.arange(len(gemms)), [len(each) for each in gemms])
    groups = grouped(key, owners, len(gemms))
    assert key[groups.first].tolist() == sorted(set(key.tolist()))
    own = [groups.numbers[begin:end] for begin, end in pairwise(groups.starts)]
    assert [key[groups.first[each]].tolist() for each in own] == [list(dict.fromkeys(each)) for each in gemms]
    members, begins = hosted(groups.numbers, groups.starts)
    found = [members[begin:end].tolist() for begin, end in pairwise(begins)]
    sets = list(map(set, gemms))
    expected: dict[int, list[int]] = {}
    for place in sorted(range(len(sets)), key=lambda place: -len(sets[place])):
        host = next((other for other in expected if sets[place] <= sets[other]), place)
        expected.setdefault(host, []).append(place)
    assert found == [expected[host] for host in sorted(expected)]


def test_items_are_made_once_when_they_are_asked_for() -> None:
    made: list[int] = []

    def make(place: int) -> int:
        made.append(place)
        return place * place

    squares = Lazy(5, make)
    assert (len(squares), squares[3], squares[-1], squares[1:3], made) == (5, 9, 16, (1, 4), [3, 4, 1, 2])
    assert list(squares) == [0, 1, 4, 9, 16]
    assert squares == (0, 1, 4, 9, 16)
    assert squares != (0, 1, 4, 9)
    assert sorted(made) == [0, 1, 2, 3, 4]
