"""Python imports this at its start where a test puts the folder on PYTHONPATH: also in the workers that Ray starts.

It wraps functions of the project, so that a test can see what really happens, and strike at the right moment:

FAULT_JOURNAL: a file that notes every measurement's begin and end, and every ranking's begin.
FAULT_PACE_S: how long a measurement takes at least.
FAULT_HOLD: the number of the measurement, in its process, that goes on for ever and heeds nobody.
FAULT_RANK_S: how long a ranking takes at least.
FAULT_RENAME: the number of the Shard, of its process, that is written and never gets its name.
"""

import importlib.abc
import importlib.machinery
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOR_EVER_S = 600.0


def note(**event: Any) -> None:
    line = json.dumps({**event, "pid": os.getpid()}) + "\n"
    with open(os.environ["FAULT_JOURNAL"], "a", encoding="utf-8") as journal:
        journal.write(line)


def asked(name: str) -> float:
    return float(os.environ.get(name, "0"))


def wait(seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop():
        time.sleep(0.01)


def measurements(module: Any) -> None:
    measure, numbers = module.measure_bundle, itertools.count(1)

    def measure_bundle(device: Any, bundle: Any, timing: Any, on_progress: Any, stop: Any, care: Any) -> Any:
        began = time.monotonic()
        note(event="begin", bundle=bundle.bundle_id)
        if next(numbers) == asked("FAULT_HOLD"):
            note(event="held", bundle=bundle.bundle_id)
            wait(FOR_EVER_S)
        measurement = measure(device, bundle, timing, on_progress, stop, care)
        wait(asked("FAULT_PACE_S") - (time.monotonic() - began), stop)
        note(event="end", bundle=bundle.bundle_id, samples=len(measurement.samples))
        return measurement

    module.measure_bundle = measure_bundle


def rankings(module: Any) -> None:
    rank = module.rank

    def slow(*arguments: Any, **options: Any) -> Any:
        note(event="rank")
        wait(asked("FAULT_RANK_S"))
        return rank(*arguments, **options)

    module.rank = slow


def renames(module: Any) -> None:
    rename, numbers = os.replace, itertools.count(1)

    def replace(source: Any, target: Any) -> None:
        if Path(target).suffix == ".parquet" and next(numbers) == asked("FAULT_RENAME"):
            note(event="written", path=str(source))
            wait(FOR_EVER_S)
        rename(source, target)

    module.os = type("os", (), {**vars(os), "replace": staticmethod(replace)})


WRAPS = {"tasks.measure": measurements, "orchestrator.ranking": rankings, "orchestrator.atomic": renames}


class Loader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self.loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        WRAPS[module.__name__](module)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in WRAPS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Loader(spec.loader)
        return spec


if "FAULT_JOURNAL" in os.environ:
    sys.meta_path.insert(0, Finder())
