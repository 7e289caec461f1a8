"""All benchmarks that need a GPU, one after another: ``make bench-gpu``; their output goes into docs/benchmarks.md."""

import os
import subprocess
import sys

import torch

ONE_GPU = (
    *("benchmarks.seed_question", "benchmarks.repeatability", "benchmarks.drift", "benchmarks.racing"),
    *("benchmarks.wide", "benchmarks.sequential", "benchmarks.order", "benchmarks.truth"),
    *("benchmarks.kernel_names", "benchmarks.transformer", "benchmarks.layer_share"),
)
ALL_GPUS = ("benchmarks.two_gpus",)


def main() -> None:
    gpus = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    for module in (*ONE_GPU, *(ALL_GPUS if gpus > 1 else ())):
        print(f"\n## {module}\n", flush=True)
        one = {"CUDA_VISIBLE_DEVICES": visible} if module in ONE_GPU else {}
        subprocess.run([sys.executable, "-m", module], check=True, env={**os.environ, **one})


if __name__ == "__main__":
    main()
