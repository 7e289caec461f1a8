"""How long the answers take that start nothing: ``--help``, ``plan``, ``check``, a configuration error."""

import subprocess
import sys
import time
from statistics import median

COMMANDS = (
    ["--help"],
    ["plan", "conf=h200"],
    ["check", "model=llama-2-7b", "tp=8", "gpu=a100"],
    ["conf=h200", "space.hh=1", "timing.protocol=x"],
)
TRIES = 5


def seconds(arguments: list[str]) -> float:
    """Wall time of one command."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "orchestrator", *arguments], capture_output=True, check=False)
    return time.perf_counter() - start


def main() -> None:
    print("| command | median s | slowest s |")
    print("|---|---:|---:|")
    for arguments in COMMANDS:
        taken = [seconds(arguments) for _ in range(TRIES)]
        print(f"| `{' '.join(arguments)}` | {median(taken):.2f} | {max(taken):.2f} |")


if __name__ == "__main__":
    main()
