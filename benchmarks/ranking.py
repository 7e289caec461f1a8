"""Ranking beside DuckDB on the same files in the same run: seconds, peak memory, and whether they agree.

``python -m benchmarks.ranking`` ranks 1,000,000 Gemm rows; ``--families 320000`` is 8,000,000 Gemm rows,
``--families 133334 --rounds 30`` 100,000,000 samples. DuckDB is no dependency:
benchmarks/duckdb.txt, and on the path by PYTHONPATH. With ``--raced`` the slower Candidates leave the rounds early, as
under ``timing.goal=top``; the query knows nothing of that, so DuckDB is left out.
"""

import argparse
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from orchestrator.compacted import Compacted
from orchestrator.compaction import FULL
from orchestrator.store import RunStore, shard_table
from tasks.drift import DIGITS
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.records import DeviceInfo, GemmFacts, Measurement, Sample, Telemetry
from tasks.settings import Timing
from tasks.statistics import FAR

Ints = NDArray[np.int64]

CANDIDATES = 25
FACT_BYTES, SAMPLE_BYTES = 700, 110
"""Of a row in memory, about: from FULL on `compact` begins another file."""
MIB = 1 << 20
NOISE, RACED_NOISE = 0.002, 0.005
"""Of a visit, relative; the second makes a race last."""
SLOW = 0.5
"""By how much those are behind in a race whose n is an odd multiple of 8: half of them."""
FROM_FACTS = """gpu, family_id, role, h, tp, batch, seq, dtype, d_ff, baseline, mlp_params, axis, value, params, passes,
a, kv, head_dim, v, experts, topk, ep, local_dim, sm_clock_mean_mhz, sm_clock_min_mhz, temperature_max_c, power_mean_w,
energy_j, power_limited, throttled, stop_reason, launch, status, message, protocol, protocol_version, l2, power,
[uuid] AS devices"""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", type=int, default=40_000, help=f"of {CANDIDATES} candidates each")
    parser.add_argument("--rounds", type=int, default=1, help="1 is the seed's protocol")
    parser.add_argument("--raced", action="store_true", help="the slower ones leave early; --rounds is the most")
    parser.add_argument("--dir", type=Path, help="where the run is made, and kept (default: a temporary directory)")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--memory", default="2GB", help="what DuckDB may take (default: %(default)s)")
    for child in ("--make", "--duckdb"):  # processes of their own, so that each has its own peak of memory
        parser.add_argument(child, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.make:
        return make(arguments.make, arguments.families, arguments.rounds, raced=arguments.raced)
    if arguments.duckdb:
        return by_duckdb(arguments.duckdb, arguments.rounds, arguments.memory)
    with tempfile.TemporaryDirectory() as folder:
        name = f"ranking-{arguments.families}x{arguments.rounds}{'-raced' * arguments.raced}"
        run = (arguments.dir or Path(folder)) / name
        if not run.exists():
            made = time.monotonic()
            sizes = ["--families", str(arguments.families), "--rounds", str(arguments.rounds)]
            sizes += ["--raced"] if arguments.raced else []
            subprocess.run([sys.executable, "-m", "benchmarks.ranking", "--make", str(run), *sizes], check=True)
            sys.stderr.write(f"made {run} in {time.monotonic() - made:.0f} s\n")
        return measure(run, arguments)


def measure(run: Path, arguments: argparse.Namespace) -> int:
    """Rank by both, in turn, and print the best of each."""
    files = list(run.glob("shards/*/*/*.parquet"))
    size = sum(path.stat().st_size for path in files) / MIB
    gemms, rounds = arguments.families * CANDIDATES, arguments.rounds
    samples = sum(pq.read_metadata(path).num_rows for path in files) - gemms
    sys.stdout.write(f"{gemms:,} Gemm rows, {samples:,} samples, {size:,.0f} MiB of Shards\n")
    ours = [sys.executable, "-m", "orchestrator", "rank", str(run)]
    theirs = [sys.executable, "-m", "benchmarks.ranking", "--duckdb", str(run)]
    theirs += ["--rounds", str(rounds), "--memory", arguments.memory]
    commands = {"orchestrator": ours}
    if arguments.raced:
        pass
    elif importlib.util.find_spec("duckdb") is None:
        sys.stdout.write("DuckDB is not installed (benchmarks/duckdb.txt): not compared\n")
    else:
        commands["duckdb"] = theirs
    best: dict[str, tuple[float, float, float]] = {}
    for _ in range(arguments.repeat):
        for name, command in commands.items():
            code, *cost = timed(command)
            if code:
                sys.stdout.write(f"{name} ended with exit code {code} after {cost[0]:.1f} s\n")
                continue
            best[name] = min(best.get(name, (np.inf, 0.0, 0.0)), (cost[0], cost[1], cost[2]))
    for name, (seconds, cpu, peak) in best.items():
        sys.stdout.write(f"{name:12}  {seconds:7.1f} s   {cpu:7.1f} s of CPU   peak {peak:6.0f} MiB\n")
    if len(best) == 2:
        wall, cpu, _ = (ours / theirs for ours, theirs in zip(best["orchestrator"], best["duckdb"], strict=True))
        sys.stdout.write(f"ratio {wall:.2f}, of CPU {cpu:.2f}\n")
        return agreement(run, rounds)
    return int(len(best) < len(commands))


def timed(command: list[str]) -> tuple[int, float, float, float]:
    """Run a command, its output thrown away: (exit code, seconds, seconds of CPU, peak resident MiB)."""
    begin = time.monotonic()
    null = os.open(os.devnull, os.O_WRONLY)
    child = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
    os.close(null)
    _, status, usage = os.wait4(child, 0)
    cpu = usage.ru_utime + usage.ru_stime
    return os.waitstatus_to_exitcode(status), time.monotonic() - begin, cpu, usage.ru_maxrss / 1024


def by_duckdb(run: Path, rounds: int, memory: str) -> int:
    """Compute what is computed by SQL: see docs/benchmarks.md for what it leaves out."""
    duckdb = importlib.import_module("duckdb")

    connection = duckdb.connect()
    connection.execute(f"SET threads = 2; SET memory_limit = '{memory}'; SET temp_directory = '{run}/spill'")
    connection.execute("SET preserve_insertion_order = false")
    query = ROWS + (ONE_ROUND if rounds == 1 else ROUNDS) + RANKED
    connection.execute(query.format(run=run, facts=FROM_FACTS))
    return 0


ROWS = """
COPY (
WITH facts AS (
    SELECT * EXCLUDE (round, seconds, slowdown)
    FROM read_parquet('{run}/shards/*/*/*.parquet', hive_partitioning = false) WHERE record = 'facts'
), samples AS (
    SELECT uuid, bundle_id, attempt, gemm_id, round, seconds / coalesce(slowdown, 1) AS seconds
    FROM read_parquet('{run}/shards/*/*/*.parquet', hive_partitioning = false) WHERE record = 'sample'
),
"""
ONE_ROUND = """
placed AS (
    SELECT facts.*, 1 AS samples, samples.seconds AS middle, samples.seconds AS low, samples.seconds AS lower,
           samples.seconds AS upper, samples.seconds AS high, NULL::DOUBLE AS cv, ln(samples.seconds / flops) AS cost
    FROM facts JOIN samples USING (uuid, bundle_id, attempt, gemm_id)
), levels AS (
    SELECT family_id, median(cost) AS level FROM placed GROUP BY ALL
), located AS (
    SELECT placed.*, cost - level AS effect FROM placed JOIN levels USING (family_id)
),
"""
ROUNDS = """
timed AS (
    SELECT family_id, value, samples.round, samples.seconds, ln(samples.seconds / flops) AS cost
    FROM facts JOIN samples USING (uuid, bundle_id, attempt, gemm_id)
), levels AS (
    SELECT family_id, round, median(cost) AS level FROM timed GROUP BY ALL
), candidates AS (
    SELECT family_id, value, list_sort(list(cost - level)) AS costs, count(*) AS samples,
           quantile_cont(seconds, [0.05, 0.25, 0.5, 0.75, 0.95]) AS p, stddev_samp(seconds) / avg(seconds) AS cv
    FROM timed JOIN levels USING (family_id, round) GROUP BY ALL
), located AS (
    SELECT facts.*, samples, p[1] AS low, p[2] AS lower, p[3] AS middle, p[4] AS upper, p[5] AS high, cv,
           list_avg(costs[1 + len(costs) // 5 : len(costs) - len(costs) // 5]) AS effect
    FROM facts JOIN candidates USING (family_id, value)
),
"""
RANKED = """
ends AS (
    SELECT family_id, min(effect) AS best, min(effect) FILTER (baseline) AS base FROM located GROUP BY ALL
)
SELECT {facts}, effect - best < ln(1 + tie_pct / 100) AS tied, exp(effect - best) AS relative,
       exp(base - effect) AS speedup, samples, low AS p5_s, lower AS p25_s, middle AS seconds, upper AS p75_s,
       high AS p95_s, cv, flops / middle / 1e12 AS tflops,
       [{{'part': part, 'gemm_id': gemm_id, 'kind': kind, 'b': b, 'm': m, 'n': n, 'k': k, 'seconds': middle,
          'tflops': flops / middle / 1e12, 'share': 1.0}}] AS parts
FROM located JOIN ends USING (family_id)
ORDER BY gpu, protocol, l2, power, role, dtype, h, tp, batch, seq, family_id, effect
) TO '{run}/duckdb.parquet' (FORMAT parquet, COMPRESSION zstd)
"""

AGREEMENT = """
SELECT count(*), count(*) FILTER (a.seconds IS NULL OR b.seconds IS NULL),
       max(abs(a.seconds / b.seconds - 1)), max(abs(a.p5_s / b.p5_s - 1)), max(abs(a.relative / b.relative - 1)),
       max(abs(a.speedup / b.speedup - 1)), count(*) FILTER ((a.tie_group = 1) != b.tied)
FROM '{run}/ranking.parquet' a FULL JOIN '{run}/duckdb.parquet' b USING (family_id, value)
"""


def agreement(run: Path, rounds: int) -> int:
    """Say how far both rankings are the same; 1 where they should be and are not."""
    duckdb = importlib.import_module("duckdb")

    connection = duckdb.connect()
    connection.execute(f"SET threads = 2; SET memory_limit = '4GB'; SET temp_directory = '{run}/spill'")
    found = connection.execute(AGREEMENT.format(run=run)).fetchone()
    assert found is not None
    rows, alone, seconds, low, relative, speedup, groups = found
    sys.stdout.write(
        f"{rows:,} rows, {alone} in one of both; largest differences: seconds {seconds:.1e}, p5 {low:.1e}, relative "
        f"{relative:.1e}, speed-up {speedup:.1e}; group 1 differs in {groups:,}\n"
    )
    # From four rounds on the product's pairs are compared by their own differences, and tied by intervals.
    exact = rounds > 1 or (max(relative, speedup) < 1e-9 and groups == 0)
    return int(alone > 0 or max(seconds, low) > 1e-9 or not exact)


def make(run: Path, families: int, rounds: int, *, raced: bool) -> int:
    """Make a run in the product's own format, compacted: one device, one Gemm a Candidate."""
    store = RunStore.create(run.parent, run.name, {"status": "finished"})
    timing = Timing(protocol="seed") if rounds == 1 else Timing()
    first = template(timing, rounds)
    device = store.shard_path("NVIDIA H200", "GPU-0", "x", 1).parent
    device.mkdir(parents=True)
    random = np.random.default_rng(1)
    together = FULL // (CANDIDATES * (FACT_BYTES + rounds * SAMPLE_BYTES))
    for begin in range(0, families, together):
        numbers = np.arange(begin, min(begin + together, families))
        facts, samples, names = tables(first, numbers, rounds, random, raced=raced)
        contents = Compacted(replaces=names, full=True)
        store.write_compacted(device, facts, samples, contents, lambda path: None)
    return 0


def template(timing: Timing, rounds: int) -> pa.Table:
    """A facts row and a sample row as the product writes them."""
    gemm = Gemm(kind="mm", b=1, m=1, n=1, k=1, dtype="bf16", layout="nt")
    candidate = Candidate(value=1, parts=(Part(name="up", gemm=gemm),), params=1, local_dim=1)
    family = Family(role="mlp_up", h=1, tp=1, batch=1, seq=1, dtype="bf16", candidates=(candidate,))
    device = DeviceInfo(
        kind="cuda",
        gpu="NVIDIA H200",
        uuid="GPU-0",
        host="node1",
        sm_count=132,
        l2_bytes=60 * MIB,
        memory_bytes=140 << 30,
        torch="2",
    )
    bundle = Bundle(families=(family,))
    measured = Measurement(
        bundle_id=bundle.bundle_id,
        samples=(Sample(gemm_id=gemm.gemm_id, round=0, position=0, calls=1, lead_calls=0, seconds=1.0, slowdown=1.0),),
        facts=(GemmFacts(gemm_id=gemm.gemm_id, launch="graph", energy_j=0.5),),
        device=device,
        telemetry=Telemetry(sm_clock_mean_mhz=1650.0, power_mean_w=690.0),
        started_utc="2026-11-30T10:00:00+00:00",
        prepare_s=0.1,
        measuring_s=1.0,
        resolved=False,
        rounds=rounds,
        stop_reason="fixed" if rounds == 1 else "max_rounds",
    )
    return shard_table(bundle, measured, timing, attempt=1, code_version="1", plan_hash="abc")


def tables(
    first: pa.Table, numbers: Ints, rounds: int, random: np.random.Generator, *, raced: bool
) -> tuple[pa.Table, pa.Table, tuple[str, ...]]:
    """Facts and samples of these Families, and the names of the files that a sweep had written them to."""
    family = np.repeat(numbers, CANDIDATES)
    candidate = np.tile(np.arange(CANDIDATES), len(numbers))
    seq, rest = 1024 + 512 * (family % 16), family // 16
    batch, rest = 1 + rest % 8, rest // 8
    tp, h = 2 ** (rest % 4), 4096 + 8 * (rest // 4)
    d_ff = (8 * h // 3 // (8 * tp) + candidate - CANDIDATES // 2) * 8 * tp
    m, n = batch * seq, d_ff // tp
    flops = 2 * m * n * h
    parts: list[str | Ints] = ["mlp_up-h", h, "-tp", tp, "-b", batch, "-s", seq, "-bf16"]
    family_id, gemm_id = joined(parts), joined(["mm-1x", m, "x", n, "x", h, "-bf16-nt"])
    facts = {
        **{"bundle_id": family_id, "family_id": family_id, "gemm_id": gemm_id, "h": h, "tp": tp, "batch": batch},
        **{"seq": seq, "d_ff": d_ff, "value": d_ff, "params": 3 * h * d_ff, "mlp_params": 3 * h * d_ff},
        **{"local_dim": n, "m": m, "n": n, "k": h, "flops": flops, "baseline": candidate == CANDIDATES // 2},
        **{"bytes": 2 * (m * n + n * h + m * h), "align_m": m & -m, "align_n": n & -n, "align_k": h & -h},
    }
    behind = 0.3 / (n & -n) + SLOW * (raced & (n % 16 != 0))
    noise = RACED_NOISE if raced else NOISE
    cost = flops / 6e14 * (1 + behind)
    order = random.random((len(numbers), rounds, CANDIDATES)).argsort(axis=2)
    row = (np.arange(len(numbers))[:, None, None] * CANDIDATES + order).reshape(-1)
    number = np.tile(np.repeat(np.arange(rounds), CANDIDATES), len(numbers))
    position = np.tile(np.arange(CANDIDATES), len(numbers) * rounds)
    if raced:
        there = number < last_rounds(behind.reshape(-1, CANDIDATES), rounds, random)[row]
        row, number, position = row[there], number[there], position[there]
    samples = {
        "bundle_id": family_id.take(pa.array(row)),
        "gemm_id": gemm_id.take(pa.array(row)),
        "round": number,
        "position": position,
        "seconds": cost[row] * np.exp(noise * random.standard_normal(len(row))),
        "slowdown": np.exp(noise * random.standard_normal(len(row))).round(DIGITS),
    }
    names = tuple(f"{name}.1.parquet" for name in pc.unique(family_id).to_pylist())
    return filled(first.slice(0, 1), facts, len(family)), filled(first.slice(1, 1), samples, len(row)), names


def last_rounds(behind: NDArray[np.float64], rounds: int, random: np.random.Generator) -> Ints:
    """After how many rounds each Candidate of ``behind[families, candidates]`` has left a race.

    It leaves at the first look at which it is known to be behind, and is in one more round, which is in flight.
    """
    looks = np.array([look for look in Timing().looks if look < rounds])
    ends = random.choice([*(looks[looks >= 6] + 1), rounds], len(behind))
    known = (behind - behind.min(axis=1, keepdims=True))[..., None] > 6 * RACED_NOISE / np.sqrt(looks)
    known[..., 0] &= behind > FAR
    last = np.where(known.any(axis=2), looks[known.argmax(axis=2)] + 1, rounds)
    return np.asarray(np.minimum(last, ends[:, None]).reshape(-1))


def joined(parts: Sequence[str | Ints]) -> pa.Array:
    texts = [part if isinstance(part, str) else pa.array(part).cast(pa.string()) for part in parts]
    return pc.binary_join_element_wise(*texts, "")


def filled(first: pa.Table, columns: dict[str, Any], count: int) -> pa.Table:
    """A table of ``count`` rows like the one given, but for these columns."""
    arrays = [
        pa.array(columns[field.name]).cast(field.type)
        if field.name in columns
        else pa.repeat(first[field.name][0], count)
        for field in first.schema
    ]
    return pa.Table.from_arrays(arrays, schema=first.schema)


if __name__ == "__main__":
    sys.exit(main())
