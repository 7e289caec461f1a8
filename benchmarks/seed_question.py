"""The seed's question as a user asks it: the whole command, twice, and by the seed's own protocol."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.families import SEED
from orchestrator.ranking import rank
from orchestrator.store import RunStore
from orchestrator.suspects import split


def ask(results: Path, name: str, *overrides: str) -> float:
    """Run the command; return its wall time in seconds."""
    command = [sys.executable, "-m", "orchestrator", "conf=auto", *SEED, f"run.dir={results}", f"run.name={name}"]
    start = time.perf_counter()
    done = subprocess.run([*command, *overrides], capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return wall


def rows(results: Path, name: str) -> list[dict[str, Any]]:
    """The ranking of a run."""
    found: list[dict[str, Any]] = rank(RunStore.open(results / name)).table.to_pylist()
    return found


def line(results: Path, name: str, wall: float) -> str:
    """One row of the table: times, the two groups of the seed, and who ties with the best."""
    ranked = rows(results, name)
    _canaries, measured = split(RunStore.open(results / name).reader().facts().table.to_pylist())
    facts = measured[0]
    tflops = {residue: [row["tflops"] for row in ranked if row["d_ff"] % 8 == residue] for residue in (0, 4)}
    groups = Counter(row["tie_group"] for row in ranked if row["d_ff"] % 8 == 0)
    best = sum(count for group, count in groups.items() if group == 1)
    return (
        f"| {name} | {wall:.1f} | {facts['prepare_s']:.2f} | {facts['measuring_s']:.2f} | {facts['rounds']} "
        f"| {median(tflops[0]):.1f} ({min(tflops[0]):.1f}–{max(tflops[0]):.1f}) | {median(tflops[4]):.1f} "
        f"| {median(tflops[0]) / median(tflops[4]):.2f} | {best} of {len(tflops[0])} | {facts['stop_reason']} |"
    )


RUNS: dict[str, tuple[str, ...]] = {"first": (), "second": (), "seed-protocol": ("timing.protocol=seed",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", default=list(RUNS), help="which (default: all)")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch)
        print(
            "| run | whole command s | preparing s | measuring s | rounds | TFLOP/s, d_ff % 8 == 0 | d_ff % 8 == 4 "
            "| ratio | in the best's tie group | stopped |"
        )
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|")
        for name in runs:
            print(line(results, name, ask(results, name, *RUNS[name])), flush=True)


if __name__ == "__main__":
    main()
