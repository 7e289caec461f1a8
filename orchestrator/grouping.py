"""Which rows are the same Gemm, which Gemms a Family has, and which Families are measured together."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from orchestrator.column import Array

MAX_KEY = 2**62


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Groups:
    """Distinct Gemms by Family. first: of each distinct Gemm a row that is it.

    gemms: the distinct Gemms of all Families one after the other, those of Family i from ``starts[i]`` to
    ``starts[i + 1]``, in the order of its rows. shared: of each distinct Gemm whether several Families have it.
    """

    first: Array
    gemms: Array
    starts: Array
    shared: Array


def keys(columns: Iterable[Array]) -> Array:
    """One whole number a row, equal for rows that are equal in all columns of whole numbers; one column at a time."""
    key, span = np.zeros(1, dtype=np.int64), 1
    for column in columns:
        values, width = _from_zero(column)
        if span * width > MAX_KEY:
            key, span = _renumbered(key)
        if span * width > MAX_KEY:
            values, width = _renumbered(values)
        key = key * width + values
        span *= width
    return key


def _from_zero(column: Array) -> tuple[Array, int]:
    if not column.size:
        return column, 1
    low = column.min()
    return column - low, int(column.max()) - int(low) + 1


def _renumbered(key: Array) -> tuple[Array, int]:
    distinct, numbers = np.unique(key, return_inverse=True)
    return numbers, len(distinct)


def grouped(key: Array, families: Array, count: int) -> Groups:
    """Find the distinct keys, and those of each Family; ``families``: of each row its Family, in increasing order."""
    order = np.argsort(key, kind="stable")
    of = key[order]
    new = np.ones(len(of), dtype=bool)
    np.not_equal(of[1:], of[:-1], out=new[1:])
    number = np.cumsum(new) - 1
    owner = families[order]
    again = np.zeros(len(of), dtype=bool)  # the same Gemm in the same Family: next to the first, as the sort is stable
    np.equal(owner[1:], owner[:-1], out=again[1:])
    again &= ~new
    having = np.bincount(number[~again], minlength=int(number[-1]) + 1 if len(of) else 0)
    gemms = np.empty(len(of), dtype=np.int64)
    gemms[order] = number
    once = np.empty(len(of), dtype=bool)
    once[order] = ~again
    lengths = np.bincount(families[once], minlength=count)
    return Groups(
        first=order[new],
        gemms=gemms if once.all() else gemms[once],
        starts=np.concatenate(([0], np.cumsum(lengths))),
        shared=having > 1,
    )


def hosted(groups: Groups) -> tuple[Array, Array]:
    """Group Families so that one whose Gemms are all among another's is measured with it, in the same rounds.

    Families that only overlap stay apart: each needs the shared Gemms in its own rounds to compare with them.
    Returns the Families bundle by bundle, each after the one that owns its Gemms, and where the bundles begin.
    """
    lengths = np.diff(groups.starts)
    order = np.argsort(-lengths, kind="stable")
    hosts = _hosts(groups, order)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    members = np.lexsort((place, hosts))
    sizes = np.bincount(hosts, minlength=len(hosts))
    return members, np.concatenate(([0], np.cumsum(sizes[sizes > 0])))


def _hosts(groups: Groups, order: Array) -> Array:
    """Of each Family the one with which it is measured, which may be itself; larger ones are asked first.

    A Gemm that only one Family has neither keeps another out nor lets it in.
    """
    hosts = np.arange(len(order))
    shared = groups.shared[groups.gemms]
    if not shared.any():
        return hosts
    owners = np.repeat(np.arange(len(order)), np.diff(groups.starts))
    common = np.bincount(owners[shared], minlength=len(order))
    starts = np.concatenate(([0], np.cumsum(common))).tolist()
    gemms = groups.gemms[shared].tolist()
    within = (common == np.diff(groups.starts)).tolist()
    sets: dict[int, frozenset[int]] = {}
    having: dict[int, list[int]] = {}
    for family in order[common[order] > 0].tolist():
        own = gemms[starts[family] : starts[family + 1]]
        found = frozenset(own)
        host = None
        if within[family]:
            host = next((other for other in having.get(own[0], ()) if found <= sets[other]), None)
        if host is not None:
            hosts[family] = host
            continue
        sets[family] = found
        for gemm in own:
            having.setdefault(gemm, []).append(family)
    return hosts
