"""Rankings of regular Families, thousands at once: the rows that ``ranking.rank`` makes of them one by one."""

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orchestrator.alike import Alike, compare_alike
from orchestrator.columns import PART_TYPE, RANKING_SCHEMA
from orchestrator.contest import PERCENTILES, percentiles, variation
from orchestrator.raced import Raced, compare_raced
from orchestrator.survey import codes
from orchestrator.timed import Form, Ints, Timed
from tasks.location import Floats

FROM_FACTS = (
    *("gpu", "family_id", "role", "h", "tp", "batch", "seq", "dtype", "d_ff", "baseline", "mlp_params", "axis"),
    *("value", "params", "passes", "a", "kv", "head_dim", "v", "experts", "topk", "ep", "layers", "local_dim"),
    *("sm_clock_mean_mhz", "sm_clock_min_mhz", "temperature_max_c", "power_mean_w"),
    *("protocol", "protocol_version", "l2", "power"),
)
"""Columns of a ranking that are those of the Candidate's first row."""


def ranked(found: Timed, number: int) -> tuple[pa.Table, Ints]:
    """Rank the Families of a form: rows of RANKING_SCHEMA, a Family's together; and each row's Family's number."""
    form, families = found.forms[number], found.families.only(found.form == number)
    facts, count = families.facts, len(families)
    shape = (count, form.candidates, form.parts)
    rows = (families.start[:, None] + np.arange(form.candidates * form.parts)).reshape(shape)
    seconds = _seconds(found, rows, form)
    work = facts["flops"].to_numpy()[rows].sum(axis=2)
    compare = compare_raced if form.raced else compare_alike
    compared = compare(np.log(_added(seconds) / work), form.tie_pct, form.confidence, form.looks)
    groups = compared.groups()
    order = _order(facts, rows[:, :, 0], groups)

    def sorted_(values: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.take_along_axis(values, order, axis=1).reshape(-1)

    rounds, seconds = found.rounds[rows], compared.undisturbed(seconds)
    flat = _added(seconds).reshape(len(seconds), -1)
    figures = dict(zip(("p5_s", "p25_s", "seconds", "p75_s", "p95_s"), percentiles(flat, PERCENTILES), strict=True))
    figures = {name: values.reshape(count, -1) for name, values in figures.items()}
    columns: dict[str, NDArray[np.generic]] = {
        **{name: sorted_(values) for name, values in figures.items()},
        "rank": sorted_(_ranks(groups)),
        "tie_group": sorted_(groups),
        "tflops": sorted_(work / figures["seconds"] / 1e12),
        "cv": sorted_(variation(flat).reshape(count, -1)),
        "samples": sorted_(rounds.sum(axis=2)),
        "rounds": sorted_(rounds.min(axis=2)),
        "align_local": sorted_(_align(facts, rows[:, :, 0])),
        "resolved": np.repeat(compared.resolved(), form.candidates),
        **{name: sorted_(values) for name, values in _ratios(compared, facts, rows[:, :, 0]).items()},
    }
    first = sorted_(rows[:, :, 0])
    whole = np.take_along_axis(rows, order[:, :, None], axis=1).reshape(-1, form.parts)
    timing = np.take_along_axis(
        percentiles(seconds.reshape(len(seconds), -1), [50])[0].reshape(shape), order[:, :, None], axis=1
    ).reshape(-1, form.parts)
    table = _table(facts, columns, first, whole, timing)
    return table, np.repeat(families.number, form.candidates)


def _seconds(found: Timed, rows: Ints, form: Form) -> Floats:
    """Seconds of each row's Gemm, ``[rounds, *rows]``; NaN in the rounds that it was not in."""
    rounds, first = found.rounds[rows], found.first[rows]
    number = np.arange(int(rounds.max())).reshape(-1, *[1] * rows.ndim)
    if not form.raced:
        return np.asarray(found.seconds[first + number])
    return np.where(number < rounds, found.seconds[first + np.minimum(number, rounds - 1)], np.nan)


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


def _ratios(compared: Alike | Raced, facts: pa.Table, rows: Ints) -> dict[str, Floats]:
    order = compared.order()
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
) -> pa.Table:
    """Put the columns together. whole, timing: rows of facts and median seconds of each part, ``[rows, parts]``."""
    count, taken = len(first), facts.take(pa.array(first))
    launches = _launch(facts, whole)
    arrays = {
        **{name: taken[name] for name in FROM_FACTS},
        **{name: pa.array(values, from_pandas=True) for name, values in columns.items()},
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
