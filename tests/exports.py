"""What exporters are tested with: measured runs, and what each target wants to be told."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator import cli
from orchestrator.export import exporter
from orchestrator.export.contract import Export
from orchestrator.export.measured import select
from orchestrator.export.request import Request, parse
from orchestrator.export.selection import Selection
from orchestrator.ranking import Ranking, rank
from orchestrator.store import RunStore

ROOT = Path(cli.__file__).parents[1]
EXAMPLE = ROOT / "results" / "examples" / "h200-seed-and-mlp"
"""fp16, of schema version 1."""
SAMPLE = ROOT / "results" / "examples" / "h200-fp8"
"""bf16, fp8 and fp8_rowwise, of schema version 2."""

NODE = (
    *("sm_version=90", "mem_bw_scaling=0.8", "mem_latency_s=3e-6", "gpus_per_node=8", "inter_node_gb_s=50"),
    *("intra_node_gb_s=450", "pcie_gb_s=64", "p2p_latency_s=1e-5"),
)
MODEL = ("h=4096", "a=32", "kv=8", "v=128256")


@dataclass(frozen=True, kw_only=True)
class Case:
    """How one target is asked: ``run`` that it can hold, words, options; ``base`` is what it copies, if anything."""

    target: str
    run: Path
    words: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    base: str = ""


CASES = (
    Case(target="csv", run=EXAMPLE),
    Case(target="csv", run=SAMPLE),
    Case(target="aiconfigurator", run=SAMPLE, words=NODE, options={"framework": "vllm", "version": "0.24.0"}),
    Case(target="aiconfigurator", run=SAMPLE, options={"name": "h200_measured"}, base="aiconfigurator"),
    Case(target="calculon", run=EXAMPLE, options={"name": "h200_measured"}, base="calculon"),
    Case(target="calculon", run=SAMPLE, words=("candidates=all",), options={"name": "it"}, base="calculon"),
    Case(target="vidur", run=EXAMPLE, words=MODEL),
    Case(target="vidur", run=SAMPLE, words=(*MODEL, "dtype=bf16")),
    Case(target="llm-analysis", run=EXAMPLE, words=("intra_node_gb_s=450", "p2p_latency_s=8e-6")),
    Case(target="llm-analysis", run=SAMPLE, words=("intra_node_gb_s=450", "p2p_latency_s=8e-6")),
)


def options(case: Case, bases: Path) -> dict[str, str]:
    """The options of a case; what it copies is made under ``bases``."""
    if not case.base:
        return dict(case.options)
    make = {"aiconfigurator": shipped_system, "calculon": calculon_system}[case.base]
    return {**case.options, "into": str(make(bases))}


def command(case: Case, bases: Path, out: Path) -> list[str]:
    """The case as a user types it."""
    flags = {"into": "--into", "name": "--as", "framework": "--framework", "version": "--version"}
    given = [word for name, value in options(case, bases).items() for word in (flags[name], value)]
    return ["export", str(case.run), "--to", case.target, "--out", str(out), *case.words, *given]


@functools.cache
def ranked(run: Path) -> Ranking:
    """The ranking of a measured run, which no test changes."""
    return rank(RunStore.open(run))


def exported(
    target: str,
    run: Path,
    words: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    ranking: Ranking | None = None,
) -> tuple[Selection, Export]:
    """One export, from the Shards to the files' contents.

    ranking: the run's, if not the one that all tests share.
    """
    found = exporter(target)
    request: Request = parse(target, words, options or {}, (*found.facts, *found.options))
    store = RunStore.open(run)
    selection = select(store, ranking or ranked(run), request, best=found.summary)
    return selection, found.export(selection, request)


def shipped_system(bases: Path) -> Path:
    """A system as aiconfigurator ships them, small: its description has notes, its tables are of two kinds."""
    files = {
        "shipped_sxm.yaml": "# its licence\ndata_dir: data/shipped_sxm # relative to this\ngpu:\n  power: 700  # W\n",
        "data/shipped_sxm/gemm/vllm/0.24.0/gemm_perf.parquet": "theirs",
        "data/shipped_sxm/gemm/vllm/0.24.0/collection_meta.yaml": "provenance: legacy\n",
        "data/shipped_sxm/attention/vllm/0.24.0/context_attention_perf.parquet": "attention",
    }
    for name, text in files.items():
        path = bases / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return bases / "shipped_sxm"


def calculon_system(bases: Path) -> Path:
    """A system file with all that calculon wants of one."""
    network = {
        "bandwidth": 450,
        "efficiency": 0.5,
        "size": 8,
        "latency": 1e-5,
        "ops": {"p2p": [1, None], "reduce_scatter": [1, 0], "all_gather": [1, 0], "all_reduce": [1, 1]},
        "must_be_filled": True,
        "processor_usage": 0.1,
    }
    unit = {"tflops": 100, "gflops_efficiency": [[1, 0.5], [0, 0.1]]}
    memory = {"GiB": 100, "GBps": 4000, "MB_efficiency": [[10, 0.9], [0, 0.5]]}
    system = {
        "matrix": {"float16": unit},
        "vector": {"float16": unit},
        "mem1": memory,
        "mem2": memory,
        "processing_mode": "no_overlap",
        "networks": [network],
    }
    path = bases / "shipped.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(system))
    return path
