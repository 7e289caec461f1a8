"""The seed's question as a user asks it: the whole command, twice, on a kept Ray, and by the seed's own protocol."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
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


PARTS = ("plan", "ray", "device", "prepare", "soak", "measure", "other", "end", "rank")
HEAD = (
    "| run | whole command s | plan s | Ray s | opening s | preparing s | soak s | measuring s | other s | end s "
    "| ranking s | rounds | TFLOP/s, d_ff % 8 == 0 | d_ff % 8 == 4 | ratio | in the best's tie group | stopped |"
)


def line(results: Path, name: str, wall: float) -> str:
    """One row of the table: times, the two groups of the seed, and who ties with the best.

    What the parts lack of the whole is Python's own start and end.
    """
    store = RunStore.open(results / name)
    ranked, seconds = rows(results, name), store.manifest()["seconds"]
    _canaries, measured = split(store.reader().facts().table.to_pylist())
    facts = measured[0]
    tflops = {residue: [row["tflops"] for row in ranked if row["d_ff"] % 8 == residue] for residue in (0, 4)}
    groups = Counter(row["tie_group"] for row in ranked if row["d_ff"] % 8 == 0)
    best = sum(count for group, count in groups.items() if group == 1)
    spent = " | ".join(f"{seconds[part]:.2f}" for part in PARTS)
    return (
        f"| {name} | {wall:.1f} | {spent} | {facts['rounds']} "
        f"| {median(tflops[0]):.1f} ({min(tflops[0]):.1f}–{max(tflops[0]):.1f}) | {median(tflops[4]):.1f} "
        f"| {median(tflops[0]) / median(tflops[4]):.2f} | {best} of {len(tflops[0])} | {facts['stop_reason']} |"
    )


RUNS: dict[str, tuple[str, ...]] = {
    "first": (),
    "second": (),
    "warming": ("--keep",),
    "warm": ("--keep",),
    "seed-protocol": ("timing.protocol=seed",),
}
"""warm goes on with what warming has kept."""


def asked(runs: Sequence[str]) -> list[str]:
    """The runs to do: before a warm one, one that warms."""
    return [name for run in runs for name in (("warming", run) if run == "warm" and "warming" not in runs else (run,))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "runs", nargs="*", default=list(RUNS), metavar="RUN", help=f"of {', '.join(RUNS)}; default: all"
    )
    runs = asked(parser.parse_args().runs)
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch)
        print(HEAD)
        print(f"|---{'|---:' * (HEAD.count('|') - 3)}|---|")
        for name in runs:
            print(line(results, name, ask(results, name, *RUNS[name])), flush=True)
            if name == "warm":  # what follows begins from nothing
                subprocess.run([sys.executable, "-m", "orchestrator", "release"], check=True, capture_output=True)


if __name__ == "__main__":
    main()
