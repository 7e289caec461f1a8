"""Heads and fp8: how the rate follows the size of a head, what GPT-3-2.7B's is worth, and fp8 against bf16.

Runs the product's own command into ``--out`` (default: a scratch folder) and prints tables from its rankings.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.ranking import rank
from orchestrator.store import RunStore
from tasks.gemm import largest_power_of_two

Row = dict[str, Any]

HEADS = (
    "space.roles=attn_score,attn_over_value",
    "space.tp=1",
    "space.a=32",
    "space.h={start: 512, stop: 4096, step: 256}",
    "space.around=h",
    "timing.goal=full",
    "timing.race_pct=1000",
)
"""All in every round: 32 heads of 16, 24, … 128 elements; batch 4, seq 2048, fp16 (the paper's figure 7)."""

GPT_3 = ("model=gpt-3-2.7b", "space.around=a", "space.tp=1")
"""h = 2560 as 32 heads of 80, and its other heads; batch 4, seq 2048, fp16."""

FP8 = (
    "space.roles=mlp_gate_up",
    "space.h=4096",
    "space.tp=1,2,4,8",
    "space.dtype=bf16,fp8,fp8_rowwise",
    "space.d_ff={start: 10240, stop: 11776, step: 64}",
)
"""25 d_ff, M = 8192."""


def sweep(results: Path, name: str, *overrides: str) -> list[Row]:
    """Run the command; return its ranking."""
    command = [sys.executable, "-m", "orchestrator", "conf=auto", "cluster.gpu=any", *overrides]
    done = subprocess.run(
        [*command, f"run.dir={results}", f"run.name={name}"], capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):  # 1: some could not be measured, which the tables show
        sys.exit(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    found: list[Row] = rank(RunStore.open(results / name)).table.to_pylist()
    return found


def heads(rows: list[Row]) -> Iterator[str]:
    """TFLOP/s of the two products by the size of a head, and for each element of it.

    Both move the scores, whatever the size of a head: where that takes the time, the rate grows with it.
    """
    yield "| head_dim | power of two | attn_score TFLOP/s | per element | attn_over_value TFLOP/s | per element |"
    yield "|---:|---:|---:|---:|---:|---:|"
    rate = {(row["role"], row["head_dim"]): row["tflops"] for row in rows}
    for d in sorted({d for _, d in rate}):
        score, over = rate[("attn_score", d)], rate[("attn_over_value", d)]
        yield (f"| {d} | {largest_power_of_two(d)} | {score:.1f} | {score / d:.2f} | {over:.1f} | {over / d:.2f} |")


def gpt_3(rows: list[Row]) -> Iterator[str]:
    """Each number of heads against the model's own 32."""
    yield "| role | a | head_dim | TFLOP/s | speed-up per FLOP over a = 32 (95%) | tie group |"
    yield "|---|---:|---:|---:|---|---:|"
    for row in sorted(rows, key=lambda row: (row["role"], row["a"])):
        if row["rank"] is None:
            yield f"| {row['role']} | {row['a']} | {row['head_dim']} | {row['status']} | | |"
            continue
        low, high = row["speedup_low"], row["speedup_high"]
        interval = "" if low is None else f" ({low:.3f}–{high:.3f})"
        yield (
            f"| {row['role']} | {row['a']} | {row['head_dim']} | {row['tflops']:.1f} | {row['speedup']:.3f}{interval} "
            f"| {row['tie_group']} |"
        )


def fp8(rows: list[Row]) -> Iterator[str]:
    """The best d_ff of each dtype and tp, and the ratio to bf16's best."""
    yield "| tp | dtype | best d_ff | TFLOP/s | over bf16's best | slowest of 25 | in the best's tie group |"
    yield "|---:|---|---:|---:|---:|---:|---:|"
    best: dict[tuple[int, str], float] = {}
    for dtype in ("bf16", "fp8", "fp8_rowwise"):
        for tp in (1, 2, 4, 8):
            family = [row for row in rows if (row["tp"], row["dtype"]) == (tp, dtype) and row["rank"] is not None]
            if not family:
                yield f"| {tp} | {dtype} | | not measured | | | |"
                continue
            first = min(family, key=lambda row: row["relative"])
            best[tp, dtype] = first["tflops"]
            ties = sum(row["tie_group"] == 1 for row in family)
            yield (
                f"| {tp} | {dtype} | {first['d_ff']} | {first['tflops']:.1f} "
                f"| {first['tflops'] / best[tp, 'bf16']:.2f} | {min(row['tflops'] for row in family):.1f} "
                f"| {ties} of {len(family)} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for the runs")
    parser.add_argument("--prefix", default="", help="what the runs' names begin with")
    parser.add_argument("words", nargs="*", metavar="key=value", help="values to replace in every sweep")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = arguments.out or Path(scratch)
        for name, words, table in (("heads", HEADS, heads), ("gpt-3-2.7b", GPT_3, gpt_3), ("fp8", FP8, fp8)):
            print(f"\n{name}: {' '.join(words)}\n")
            print("\n".join(table(sweep(results, arguments.prefix + name, *words, *arguments.words))), flush=True)


if __name__ == "__main__":
    main()
