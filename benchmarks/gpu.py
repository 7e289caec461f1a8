"""All benchmarks that need a GPU, one after another: ``make bench-gpu``; their output goes into docs/benchmarks.md."""

import torch

from benchmarks import repeatability, seed_question, truth, two_gpus


def main() -> None:
    for module in (seed_question, repeatability, truth, *((two_gpus,) if torch.cuda.device_count() > 1 else ())):
        print(f"\n## {module.__name__}\n", flush=True)
        module.main()


if __name__ == "__main__":
    main()
