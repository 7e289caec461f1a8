"""Which rows are the same Gemm, which Gemms a Family has, and which Families are measured together."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from orchestrator.column import Array

MAX_KEY = 2**62


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Groups:
    """Distinct keys by Family. first: of each distinct key a row that has it.

    numbers: the distinct keys of all Families one after the other, by their places in ``first``; those of Family i from
    ``starts[i]`` to ``starts[i + 1]``, in the order of its rows.
    """

    first: Array
    numbers: Array
    starts: Array


def keys(columns: Iterable[Array]) -> Array:
    """One whole number a row, equal for rows that are equal in all columns of whole numbers; one column at a time."""
    key, span = np.zeros(1, dtype=np.int64), 1
    for column in columns:
        low = int(column.min())
        width = int(column.max()) - low + 1
        if span * width > MAX_KEY:
            key, span = _renumbered(key)
        if span * width > MAX_KEY:
            column, width = _renumbered(column)
            low = 0
        key = key * width
        key = key + column if len(key) == 1 else np.add(key, column, out=key)
        key -= low
        span *= width
    return key


def _renumbered(key: Array) -> tuple[Array, int]:
    distinct, numbers = np.unique(key, return_inverse=True)
    return numbers, len(distinct)


def grouped(key: Array, families: Array, count: int) -> Groups:
    """Find the distinct keys, and those of each Family; ``families``: of each row its Family, in increasing order."""
    order = np.argsort(key, kind="stable")
    key = key[order]
    new = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=new[1:])
    del key
    number = np.cumsum(new, dtype=np.int32) - 1
    owner = families[order]
    first = new.copy()  # of its Family: a second one is next to it, as the sort is stable
    first[1:] |= owner[1:] != owner[:-1]
    del owner
    numbers = np.empty_like(number)
    numbers[order] = number
    once = np.empty_like(first)
    once[order] = first
    lengths = np.bincount(families[once], minlength=count)
    return Groups(
        first=order[new],
        numbers=numbers if once.all() else numbers[once],
        starts=np.concatenate(([0], np.cumsum(lengths))),
    )


def hosted(gemms: Array, starts: Array) -> tuple[Array, Array]:
    """Group Families so that one whose Gemms are all among another's is measured with it, in the same rounds.

    Families that only overlap stay apart: each needs the shared Gemms in its own rounds to compare with them.
    gemms: the distinct Gemms of all Families one after the other, numbered from 0, those of Family i from ``starts[i]``
    to ``starts[i + 1]``.
    Returns the Families bundle by bundle, each after the one that owns its Gemms, and where the bundles begin.
    """
    order = np.argsort(-np.diff(starts), kind="stable")
    hosts = _hosts(gemms, starts, order)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    members = np.lexsort((place, hosts))
    sizes = np.bincount(hosts, minlength=len(hosts))
    return members, np.concatenate(([0], np.cumsum(sizes[sizes > 0])))


def _hosts(gemms: Array, starts: Array, order: Array) -> Array:
    """Of each Family the one with which it is measured, which may be itself; those in ``order`` are asked in turn.

    Only a Family that shares all its Gemms can be another's guest, and its host has its first Gemm.
    """
    count = len(order)
    hosts = np.arange(count)
    owners = np.repeat(hosts, np.diff(starts))
    families = np.bincount(gemms)
    guests = np.bincount(owners[families[gemms] == 1], minlength=count) == 0
    firsts = np.zeros(len(families), dtype=bool)
    firsts[gemms[starts[:-1][guests]]] = True
    found = firsts[gemms]
    asked = gemms[found].tolist()
    begins = np.concatenate(([0], np.cumsum(np.bincount(owners[found], minlength=count)))).tolist()
    having: dict[int, list[int]] = {}
    sets: dict[int, frozenset[int]] = {}

    def own(family: int) -> frozenset[int]:
        if family not in sets:
            sets[family] = frozenset(gemms[starts[family] : starts[family + 1]].tolist())
        return sets[family]

    order = order[np.diff(begins)[order] > 0]
    for family, guest in zip(order.tolist(), guests[order].tolist(), strict=True):
        mine = asked[begins[family] : begins[family + 1]]
        if guest and (others := having.get(mine[0])):
            host = next((other for other in others if own(family) <= own(other)), None)
            if host is not None:
                hosts[family] = host
                sets.pop(family, None)
                continue
        for gemm in mine:
            having.setdefault(gemm, []).append(family)
    return hosts
