"""Rankings of regular Families, thousands at once: the rows that ``ranking.rank`` makes of them one by one, to the bit.

Regular is a Family that one device measured once and wholly, in rounds: one Shard, two Candidates or more in the order
of their values, each with the same parts, all ``ok``, every Gemm in every round, and no round left out.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orchestrator.alike import Alike, compare_alike
from orchestrator.columns import PART_TYPE, RANKING_SCHEMA
from orchestrator.contest import PERCENTILES, percentiles, variation
from orchestrator.survey import codes
from tasks.comparison import OWN_ROUNDS
from tasks.location import MIN_ROUNDS, Floats

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MOST_PARTS = 7
"""From eight on numpy adds in another order than one after another."""
FROM_FACTS = (
    *("gpu", "family_id", "role", "h", "tp", "batch", "seq", "dtype", "d_ff", "baseline", "mlp_params", "axis"),
    *("value", "params", "passes", "a", "kv", "head_dim", "v", "experts", "topk", "ep", "layers", "local_dim"),
    *("sm_clock_mean_mhz", "sm_clock_min_mhz", "temperature_max_c", "power_mean_w"),
    *("protocol", "protocol_version", "l2", "power"),
)
"""Columns of a ranking that are those of the Candidate's first row."""


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
    """What Families of one form share."""

    rounds: int
    candidates: int
    parts: int
    tie_pct: float
    confidence: float
    looks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """Families and what was measured: form[i] is an index of ``forms``, -1 where a Family is not regular.

    first[row of facts]: index in ``seconds`` of the row's Gemm in round 0; the other rounds follow.
    """

    families: Families
    form: Ints
    forms: tuple[Form, ...]
    first: Ints
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
    seconds = samples["seconds"].combine_chunks().to_numpy(zero_copy_only=False)[place][order]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    counts = np.diff(begins, append=len(key))
    gemms_of = np.bincount(key[begins] // kinds, minlength=len(shard_starts))
    per_shard = lengths // np.maximum(gemms_of, 1)
    # Whole: as many rounds for each Gemm, and these are 0, 1, 2, …
    wrong = (rounds != np.arange(len(key)) - np.repeat(begins, counts)) | (
        np.repeat(counts, counts) != per_shard[key // kinds]
    )
    whole = (np.bincount(key // kinds, weights=wrong, minlength=len(shard_starts)) == 0) & (per_shard > 0)

    index = ranges(families.start, families.rows)
    owner = np.repeat(np.arange(len(families)), families.rows)
    wanted = shard[owner] * kinds + gemms[: facts.num_rows][index]
    found = np.minimum(np.searchsorted(key[begins], wanted), max(len(begins) - 1, 0))
    missing = (key[begins][found] != wanted) if len(begins) else np.ones(len(wanted), dtype=bool)
    first = np.zeros(facts.num_rows, dtype=np.int64)
    first[index] = begins[found] if len(begins) else 0
    unfit = _unfit_rows(facts)[index] | missing
    regular = whole[shard] & (np.bincount(owner, weights=unfit, minlength=len(families)) == 0)
    form, forms = _forms(families, per_shard[shard], regular)
    return Timed(families=families, form=form, forms=forms, first=first, seconds=seconds)


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


def _forms(families: Families, rounds: Ints, regular: Bools) -> tuple[Ints, tuple[Form, ...]]:
    facts, start = families.facts, families.start
    value, part = codes(facts["value"]), codes(facts["part"])
    parts = np.zeros(len(families), dtype=np.int64)
    for number in range(1, MOST_PARTS + 1):  # rows of the first Candidate
        last = np.minimum(start + number, len(value) - 1)
        ends = (families.rows == number) | (value[last] != value[start])
        parts = np.where((parts == 0) & (families.rows >= number) & ends, number, parts)
    candidates = families.rows // np.maximum(parts, 1)
    # In few rounds each pair's spread is moderated by that of the others.
    unlike = (rounds >= MIN_ROUNDS) & (rounds < OWN_ROUNDS)
    regular = regular & (parts > 0) & (candidates > 1) & (candidates * parts == families.rows) & ~unlike
    settings = [facts[name].to_numpy()[start] for name in ("tie_pct", "confidence", "looks")]
    columns = np.column_stack([rounds, candidates, parts, *settings]).astype(np.float64)
    distinct, form = np.unique(columns, axis=0, return_inverse=True)
    forms = tuple(
        Form(rounds=int(r), candidates=int(c), parts=int(p), tie_pct=float(t), confidence=float(f), looks=int(n))
        for r, c, p, t, f, n in distinct
    )
    form = np.where(regular, form.reshape(-1), -1)
    for number, each in enumerate(forms):
        own = np.flatnonzero(form == number)
        if not len(own):
            continue
        rows = start[own][:, None] + np.arange(each.candidates * each.parts)
        values = value[rows].reshape(len(own), each.candidates, each.parts)
        names = np.sort(part[rows].reshape(values.shape), axis=2)
        in_order = part[rows].reshape(values.shape) == part[rows].reshape(values.shape)[:, :1]
        fit = (np.diff(values[:, :, 0], axis=1) > 0).all(axis=1) & (values == values[:, :, :1]).all(axis=(1, 2))
        fit &= in_order.all(axis=(1, 2)) & (np.diff(names, axis=2) > 0).all(axis=(1, 2))
        form[own[~fit]] = -1
    return form, forms


def ranked(found: Timed, number: int) -> tuple[pa.Table, Ints]:
    """Rank the Families of a form: rows of RANKING_SCHEMA, a Family's together; and each row's Family's number."""
    form, families = found.forms[number], found.families.only(found.form == number)
    facts, count = families.facts, len(families)
    shape = (count, form.candidates, form.parts)
    rows = (families.start[:, None] + np.arange(form.candidates * form.parts)).reshape(shape)
    seconds = found.seconds[found.first[rows][None] + np.arange(form.rounds)[:, None, None, None]]
    flops = facts["flops"].to_numpy()[rows]
    totals = _added(seconds)
    work = flops.sum(axis=2)
    compared = compare_alike(np.log(totals / work), form.tie_pct, form.confidence, form.looks)
    groups = compared.groups()
    order = _order(facts, rows[:, :, 0], groups)

    def sorted_(values: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.take_along_axis(values, order, axis=1).reshape(-1)

    flat = totals.reshape(form.rounds, -1)
    figures = dict(zip(("p5_s", "p25_s", "seconds", "p75_s", "p95_s"), percentiles(flat, PERCENTILES), strict=True))
    figures = {name: values.reshape(count, -1) for name, values in figures.items()}
    columns: dict[str, NDArray[np.generic]] = {
        **{name: sorted_(values) for name, values in figures.items()},
        "rank": sorted_(_ranks(groups)),
        "tie_group": sorted_(groups),
        "tflops": sorted_(work / figures["seconds"] / 1e12),
        "cv": sorted_(variation(flat).reshape(count, -1)),
        "align_local": sorted_(_align(facts, rows[:, :, 0])),
        "resolved": np.repeat(compared.resolved(), form.candidates),
        **{name: sorted_(values) for name, values in _ratios(compared, facts, rows[:, :, 0]).items()},
    }
    first = sorted_(rows[:, :, 0])
    whole = np.take_along_axis(rows, order[:, :, None], axis=1).reshape(-1, form.parts)
    timing = np.take_along_axis(
        percentiles(seconds.reshape(form.rounds, -1), [50])[0].reshape(shape), order[:, :, None], axis=1
    ).reshape(-1, form.parts)
    table = _table(facts, columns, first, whole, timing, form)
    return table, np.repeat(families.number, form.candidates)


def _added(seconds: Floats) -> Floats:
    """Sum over the last axis, one after another."""
    return reduce(np.add, (seconds[..., part] for part in range(seconds.shape[-1])))


def _ranks(groups: Ints) -> Ints:
    """1 + how many Candidates are in better groups."""
    ordered = np.sort(groups, axis=1)
    better = np.zeros_like(groups)
    for place in range(groups.shape[1]):
        better += ordered[:, place][:, None] < groups
    return better + 1


def _align(facts: pa.Table, rows: Ints) -> Ints:
    local = codes(pc.if_else(pc.equal(pc.fill_null(facts["local_dim"], 0), 0), facts["value"], facts["local_dim"]))
    return local[rows] & -local[rows]


def _order(facts: pa.Table, rows: Ints, groups: Ints) -> Ints:
    """Tie groups first; inside a tie fewer parameters, then the larger power of two of the local dimension."""
    params = codes(pc.fill_null(facts["params"], 0))[rows]
    return np.lexsort((codes(facts["value"])[rows], -_align(facts, rows), params, groups), axis=1)


def _ratios(compared: Alike, facts: pa.Table, rows: Ints) -> dict[str, Floats]:
    order = np.argsort(compared.effect, axis=1, kind="stable")
    found = _ratio("relative", *compared.against(order[:, 0]))
    baseline = np.asarray(codes(facts["baseline"]) > 0)[rows]
    ordered = np.take_along_axis(baseline, order, axis=1)
    base = np.take_along_axis(order, ordered.argmax(axis=1)[:, None], axis=1)[:, 0]
    estimate, half = compared.against(base)
    known = np.any(ordered, axis=1, keepdims=True)
    return {**found, **_ratio("speedup", np.where(known, -estimate, np.nan), np.where(known, half, np.nan))}


def _ratio(name: str, middle: Floats, half: Floats) -> dict[str, Floats]:
    """The ratio and its interval; NaN where unknown."""
    half = np.where(np.isfinite(half), half, np.nan)
    return {name: np.exp(middle), f"{name}_low": np.exp(middle - half), f"{name}_high": np.exp(middle + half)}


def _table(
    facts: pa.Table,
    columns: dict[str, NDArray[np.generic]],
    first: NDArray[np.generic],
    whole: Ints,
    timing: Floats,
    form: Form,
) -> pa.Table:
    """Put the columns together. whole, timing: rows of facts and median seconds of each part, ``[rows, parts]``."""
    count, taken = len(first), facts.take(pa.array(first))
    launches = _launch(facts, whole)
    arrays = {
        **{name: taken[name] for name in FROM_FACTS},
        **{name: pa.array(values, from_pandas=True) for name, values in columns.items()},
        "samples": pa.repeat(pa.scalar(form.rounds * form.parts), count),
        "rounds": pa.repeat(pa.scalar(form.rounds), count),
        "parts": _parts(facts, whole, timing),
        "energy_j": pa.array(_added(facts["energy_j"].to_numpy()[whole]), from_pandas=True),
        "power_limited": pc.fill_null(taken["power_limited"], False),
        "throttled": pc.fill_null(taken["throttled"], False),
        "stop_reason": pc.fill_null(taken["stop_reason"].cast(pa.string()), ""),
        "launch": launches,
        "status": pa.repeat(pa.scalar("ok"), count),
        "message": pa.repeat(pa.scalar(""), count),
        "devices": pa.ListArray.from_arrays(
            pa.array(np.arange(count + 1), pa.int32()), taken["uuid"].cast(pa.string()).combine_chunks()
        ),
    }
    return pa.table([_cast(arrays[field.name], field.type) for field in RANKING_SCHEMA], schema=RANKING_SCHEMA)


def _cast(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def _launch(facts: pa.Table, whole: Ints) -> pa.Array | pa.ChunkedArray:
    """How a Candidate's calls were launched: the distinct ways of its parts."""
    launch = pc.fill_null(facts["launch"].cast(pa.string()), "")
    if whole.shape[1] == 1:
        return launch.take(pa.array(whole[:, 0]))
    values = codes(launch)
    distinct, place = np.unique(values[whole], axis=0, return_inverse=True)
    names = {code: launch[int(np.argmax(values == code))].as_py() for code in np.unique(distinct)}
    texts = [", ".join(sorted({names[code] for code in each} - {""})) for each in distinct]
    return pa.array(texts, pa.string()).take(pa.array(place.reshape(-1)))


def _parts(facts: pa.Table, whole: Ints, timing: Floats) -> pa.ListArray:
    taken = facts.select(["part", "gemm_id", "kind", "b", "m", "n", "k", "flops"]).take(pa.array(whole.reshape(-1)))
    measured = {
        "seconds": timing.reshape(-1),
        "tflops": taken["flops"].to_numpy() / timing.reshape(-1) / 1e12,
        "share": (timing / _added(timing)[:, None]).reshape(-1),
    }
    arrays = [
        pa.array(measured[field.name]) if field.name in measured else _cast(taken[field.name], field.type)
        for field in PART_TYPE
    ]
    plain = [array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array for array in arrays]
    offsets = pa.array(np.arange(len(whole) + 1) * whole.shape[1], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(plain, fields=list(PART_TYPE)))
