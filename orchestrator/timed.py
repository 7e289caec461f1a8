"""What was measured of many Families, side by side, and which of them are regular: can be ranked at once.

Regular is a Family that one device measured once, in rounds: one Shard, two Candidates or more in the order of their
values, each with the same parts, all ``ok``, no round left out, and every Gemm in each round up to its last one: who
left a race did not come back, and somebody stayed to the end. No round was a level of a search.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orchestrator.survey import codes
from orchestrator.visits import paced
from tasks.comparison import OWN_ROUNDS
from tasks.location import MIN_ROUNDS, Floats

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MOST_PARTS = 7
"""From eight on numpy adds in another order than one after another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Families:
    """facts: rows in which Family ``i`` has ``rows[i]`` from ``start[i]`` on; number: its place in the ranking.

    samples: rows of which it has ``sample_rows[i]``, all of its Shard, from ``sample_start[i]`` on.
    """

    facts: pa.Table
    samples: pa.Table
    number: Ints
    start: Ints
    rows: Ints
    sample_start: Ints
    sample_rows: Ints

    def __len__(self) -> int:
        return len(self.number)

    def only(self, kept: Bools | Ints) -> "Families":
        """Return some of them."""
        picked = {
            name: getattr(self, name)[kept] for name in ("number", "start", "rows", "sample_start", "sample_rows")
        }
        return Families(facts=self.facts, samples=self.samples, **picked)


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """What Families of one form share.

    raced: whether they are compared as ``orchestrator.raced`` does it; then some may have fewer ``rounds``.
    """

    rounds: int
    raced: bool
    candidates: int
    parts: int
    tie_pct: float
    confidence: float
    looks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """Families and what was measured: form[i] is an index of ``forms``, -1 where a Family is not regular.

    first[row of facts]: index in ``seconds`` of the row's Gemm in round 0; the other ones of its ``rounds`` follow.
    """

    families: Families
    form: Ints
    forms: tuple[Form, ...]
    first: Ints
    rounds: Ints
    seconds: Floats


def timed(families: Families) -> Timed:
    """Find the samples of each Family's rows, and which Families are regular."""
    facts, samples = families.facts, families.samples
    gemms = codes(pa.chunked_array([*_strings(facts["gemm_id"]), *_strings(samples["gemm_id"])], pa.string()))
    kinds = int(gemms.max(initial=0)) + 1
    # A Shard is named by where its samples begin: Families of one Bundle share them.
    shard_starts, shard = np.unique(families.sample_start, return_inverse=True)
    lengths = np.zeros(len(shard_starts), dtype=np.int64)
    lengths[shard] = families.sample_rows
    place = ranges(shard_starts, lengths)
    shard_of = np.repeat(np.arange(len(shard_starts)), lengths)
    key = shard_of * kinds + gemms[facts.num_rows :][place]
    rounds = codes(samples["round"])[place]
    order = np.lexsort((rounds, key))
    key, rounds = key[order], rounds[order]
    seconds = paced(samples["seconds"], samples["slowdown"])[place][order]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    counts = np.diff(begins, append=len(key))
    wrong = rounds != np.arange(len(key)) - np.repeat(begins, counts)  # each Gemm's are to be 0, 1, 2, …
    whole = (np.bincount(key // kinds, weights=wrong, minlength=len(shard_starts)) == 0) & (lengths > 0)
    most = np.zeros(len(shard_starts), dtype=np.int64)
    np.maximum.at(most, key[begins] // kinds, counts)

    index = ranges(families.start, families.rows)
    owner = np.repeat(np.arange(len(families)), families.rows)
    wanted = shard[owner] * kinds + gemms[: facts.num_rows][index]
    found = np.minimum(np.searchsorted(key[begins], wanted), max(len(begins) - 1, 0))
    missing = (key[begins][found] != wanted) if len(begins) else np.ones(len(wanted), dtype=bool)
    first, of_row = np.zeros((2, facts.num_rows), dtype=np.int64)
    if len(begins):
        first[index], of_row[index] = begins[found], counts[found]
    unfit = _unfit_rows(facts)[index] | missing
    regular = whole[shard] & (np.bincount(owner, weights=unfit, minlength=len(families)) == 0)
    regular &= facts["rounds"].to_numpy()[families.start] == most[shard]  # else some were levels of a search
    form, forms = _forms(families, most[shard], of_row, regular)
    return Timed(families=families, form=form, forms=forms, first=first, rounds=of_row, seconds=seconds)


def _strings(column: pa.ChunkedArray) -> list[pa.Array]:
    return list(column.cast(pa.string()).chunks)


def ranges(start: Ints, length: Ints) -> Ints:
    """Return ``start[0], start[0] + 1, …, start[1], …``: ``length[i]`` numbers from ``start[i]`` on, for each i."""
    before = np.cumsum(length) - length
    return np.arange(int(length.sum())) - np.repeat(before - start, length)


def _unfit_rows(facts: pa.Table) -> Bools:
    """Rows that no regular Family has."""
    fit = (
        pc.equal(facts["status"].cast(pa.string()), "ok"),
        pc.is_valid(facts["axis"]),
        pc.equal(pc.fill_null(facts["first_round"], 0), 0),
        pc.less(facts["flops"], 2**53),
        pc.is_valid(facts["baseline"]),
        pc.not_equal(facts["protocol"].cast(pa.string()), "sequential"),
    )
    return ~np.asarray(reduce(pc.and_, fit).to_numpy(zero_copy_only=False), dtype=bool)


def _forms(families: Families, rounds: Ints, of_row: Ints, regular: Bools) -> tuple[Ints, tuple[Form, ...]]:
    """Find each Family's form, -1 where it is not regular; rounds: of its Shard, of_row: of each row of facts."""
    facts, start = families.facts, families.start
    parts = _count_parts(families)
    candidates = families.rows // np.maximum(parts, 1)
    regular = regular & (parts > 0) & (candidates > 1) & (candidates * parts == families.rows)
    raced = _raced(families, rounds, of_row)
    # Those of few rounds stand in one array with those of up to twice as many.
    height = np.where(raced, 2 ** np.ceil(np.log2(np.maximum(rounds, 1))), rounds)
    settings = [facts[name].to_numpy()[start] for name in ("tie_pct", "confidence", "looks")]
    columns = np.column_stack([height, raced, candidates, parts, *settings]).astype(np.float64)
    distinct, form = np.unique(columns, axis=0, return_inverse=True)
    forms = tuple(
        Form(rounds=int(h), raced=bool(r), candidates=int(c), parts=int(p), tie_pct=t, confidence=f, looks=int(n))
        for h, r, c, p, t, f, n in distinct.tolist()
    )
    form = np.where(regular, form.reshape(-1), -1)
    value, part = codes(facts["value"]), codes(facts["part"])
    for number, each in enumerate(forms):
        own = np.flatnonzero(form == number)
        if not len(own):
            continue
        shape = (len(own), each.candidates, each.parts)
        rows = (start[own][:, None] + np.arange(each.candidates * each.parts)).reshape(shape)
        lasting = of_row[rows].min(axis=2).max(axis=1) == rounds[own]  # somebody is there to the end
        form[own[~(lasting & _in_order(value[rows], part[rows]))]] = -1
    return form, forms


def _count_parts(families: Families) -> Ints:
    """Rows of the first Candidate of each Family; 0 where they are more than MOST_PARTS."""
    value, start = codes(families.facts["value"]), families.start
    parts = np.zeros(len(families), dtype=np.int64)
    for number in range(1, MOST_PARTS + 1):
        last = np.minimum(start + number, len(value) - 1)
        ends = (families.rows == number) | (value[last] != value[start])
        parts = np.where((parts == 0) & (families.rows >= number) & ends, number, parts)
    return parts


def _raced(families: Families, rounds: Ints, of_row: Ints) -> Bools:
    """Families that somebody left; or of so few rounds that each pair's spread is moderated by that of the others."""
    owner = np.repeat(np.arange(len(families)), families.rows)
    left = of_row[ranges(families.start, families.rows)] < rounds[owner]
    return (np.bincount(owner, weights=left, minlength=len(families)) > 0) | (
        (rounds >= MIN_ROUNDS) & (rounds < OWN_ROUNDS)
    )


def _in_order(values: Ints, parts: Ints) -> Bools:
    """Which Families have Candidates by value, each with the same parts; both ``[families, candidates, parts]``."""
    fit = (np.diff(values[:, :, 0], axis=1) > 0).all(axis=1) & (values == values[:, :, :1]).all(axis=(1, 2))
    alike = (parts == parts[:, :1]).all(axis=(1, 2))
    return np.asarray(fit & alike & (np.diff(np.sort(parts, axis=2), axis=2) > 0).all(axis=(1, 2)))
