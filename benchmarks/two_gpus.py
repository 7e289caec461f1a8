"""Do all GPUs of this host work? Sixteen equal Families on one GPU, then on all of them."""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from orchestrator.store import RunStore
from orchestrator.suspects import split

FAMILIES = 16


def conf(path: Path) -> Path:
    """A sweep of sixteen Families, h = 4096 + 8·i, 25 d_ff each, with fixed rounds: all cost nearly the same."""
    text = (
        "space:\n  roles: [seed_bmm]\n"
        f"  h: {{start: 4096, stop: {4096 + 8 * (FAMILIES - 1)}, step: 8}}\n"
        "  tp: 1\n  batch: 4\n  dtype: [fp16]\n  d_ff: {start: 10240, stop: 11776, step: 64}\n"
        "timing:\n  goal: full\n  min_rounds: 40\n  max_rounds: 40\ncluster:\n  gpu: any\n"
    )
    path.write_text(text)
    return path


def sweep(results: Path, name: str, *overrides: str) -> float:
    """Run the sweep; return the wall time of the whole command."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "orchestrator", f"conf={conf(results / 'equal.yaml')}", f"run.dir={results}"]
    done = subprocess.run([*command, f"run.name={name}", *overrides], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - start


def summary(results: Path, name: str, wall: float) -> tuple[str, float]:
    """One row of the table, and the wall time of the measuring phase: first start to last end, without the soak."""
    _canaries, facts = split(RunStore.open(results / name).reader().facts().table.to_pylist())
    families = {(row["family_id"], row["uuid"]): row for row in facts}
    starts = [row["started_utc"].timestamp() for row in families.values()]
    spent = [row["prepare_s"] + row["soak_s"] + row["measuring_s"] for row in families.values()]
    ends = [start + seconds for start, seconds in zip(starts, spent, strict=True)]
    gemms = Counter((row["gemm_id"], row["family_id"]) for row in facts)
    devices = Counter(uuid for _, uuid in families)
    soak = max(row["soak_s"] for row in families.values())  # each GPU soaks once, all at the same time
    phase = max(ends) - min(starts) - soak
    row = f"| {name} | {wall:.1f} | {phase:.2f} | {sorted(devices.values())} | {len(gemms)} | {max(gemms.values())} |"
    return row, phase


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch)
        print("| run | whole command s | measuring phase s | families a GPU | gemms | times measured |")
        print("|---|---:|---:|---|---:|---:|")
        phases = []
        for name, overrides in (("one", ("cluster.max_gpus=1",)), ("all", ())):
            row, phase = summary(results, name, sweep(results, name, *overrides))
            print(row, flush=True)
            phases.append(phase)
        print(f"\nmeasuring phase on all GPUs: 1/{phases[0] / phases[1]:.2f} of one GPU's")


if __name__ == "__main__":
    main()
