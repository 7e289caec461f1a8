"""A million Points: seconds and memory of their expansion, and of ``plan`` as a whole command."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from orchestrator.config import compose
from orchestrator.space import expand_space

TRIES = 3
CONF = "h200"
GRID = ("space.tp=1,2,4,8", "space.seq=2048", "space.dtype=fp16")
FEW = (*GRID, "space.roles=seed_bmm,mlp", "space.h=4096,8192", "space.batch=1,2,4,8")
CASES = {
    "many Families of 25 to 52": (
        *GRID,
        "space.roles=seed_bmm,mlp",
        "space.h={start: 1024, stop: 16448, step: 64}",
        "space.batch=1,2,4,8,16,32,64,128,256,512",
        "space.d_ff={ratio: 8/3, distance: 100, step: 4}",
    ),
    "few Families of thousands": (*FEW, "space.d_ff={start: 8192, stop: 23816, step: 1}"),
    "the same, with a condition": (
        *FEW,
        "space.d_ff={start: 8192, stop: 23816, step: 1}",
        "space.where=d_ff % (64*tp) == 0 and d_ff / h > 2.3",
    ),
    "Families of one": (
        *GRID,
        "space.roles=mlp",
        "space.h={start: 1024, stop: 32960, step: 64}",
        "space.batch={start: 1, stop: 500, step: 1}",
        "space.d_ff=16384",
    ),
    "whole layers, forward and backward": (
        *GRID,
        "space.roles=layer",
        "space.h=4096,8192",
        "space.batch=1,2,4,8",
        "space.a=32",
        "space.kv=8",
        "space.d_ff={start: 8192, stop: 39441, step: 1}",
        "space.pass=fwd,bwd",
    ),
    "shapes of 7e9±2% parameters": (
        *GRID,
        "model=llama-2-7b",
        "space.params_budget=7e9±2%",
        "space.batch=1,2,4,8,16,32",
        "space.h.step=64",
        "space.d_ff.step=1",
    ),
}


def expansion(words: Sequence[str]) -> dict[str, Any]:
    """Expand a space: what there is, and the seconds."""
    config = compose(CONF, list(words))
    start = time.perf_counter()
    found = expand_space(config)
    seconds = time.perf_counter() - start
    counts = {"points": found.points, "families": len(found.families), "gemms": found.gemms}
    return {**counts, "skipped": len(found.skips), "seconds": seconds}


def child(arguments: Sequence[str]) -> tuple[str, float, float]:
    """Run Python in a process of its own: what it printed, seconds, and MiB at its peak."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as printed:
        text = printed.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return text, time.perf_counter() - start, usage.ru_maxrss / 1024


def row(name: str, tries: int) -> str:
    """A case's line of the table: the fastest of some tries, and the most memory."""
    expanded = [child(["-m", "benchmarks.expansion", name]) for _ in range(tries)]
    planned = [child(["-m", "orchestrator", "plan", f"conf={CONF}", *CASES[name]]) for _ in range(tries)]
    of = json.loads(expanded[0][0])
    seconds = min(json.loads(text)["seconds"] for text, _, _ in expanded)
    return (
        f"| {name} | {of['points']:,} | {of['families']:,} | {of['gemms']:,} | {of['skipped']:,} "
        f"| {seconds:.2f} | {max(mib for *_, mib in expanded):.0f} "
        f"| {min(spent for _, spent, _ in planned):.2f} | {max(mib for *_, mib in planned):.0f} |"
    )


def main() -> None:
    if sys.argv[1:]:  # the child
        print(json.dumps(expansion(CASES[sys.argv[1]])))
        return
    print("| space | Points | Families | distinct Gemms | skipped | expand s | MiB | `plan` s | MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in CASES:
        print(row(name, TRIES), flush=True)


if __name__ == "__main__":
    main()
