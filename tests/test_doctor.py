"""``doctor`` as a user runs it: a local Ray, clusters of several nodes, exit codes, JSON, tables within 80 columns."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate
from rich.console import Console

from orchestrator import cli
from orchestrator.health import examine
from orchestrator.health_records import Fleet
from orchestrator.health_tables import show
from orchestrator.inspect_cluster import results_disk
from orchestrator.kept_place import Place, Use, locked
from tasks.gpu_facts import GpuProcess
from tests.fleet import LEAN
from tests.inspected import facts, gpu, healthy, report, torch

ROOT = Path(cli.__file__).parents[1]
IDLE = "import os\nos.getloadavg = lambda: (0.5, 0.5, 0.5)\n"
"""A sitecustomize.py: whatever else this machine does, its nodes are idle."""
NVML = """\
import sys
from tests.fake_nvml import GIB, FakeNvml, h200, process
busy = h200(1, ComputeRunningProcesses=[process(4242, 3 * GIB)])
sys.modules["pynvml"] = FakeNvml([h200(0), busy], processes={4242: "somebody's training"})
"""
"""A pynvml.py: two H200s, of which the second is in use."""
HANGS = "import time\ntime.sleep(600)\n"

TEXT, MAYBE_TEXT, COUNT = {"type": "string"}, {"type": ["string", "null"]}, {"type": "integer", "minimum": 0}


def record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


SCHEMA = record(
    ok={"type": "boolean"},
    conf=TEXT,
    overrides={"type": "array", "items": TEXT},
    gpu=TEXT,
    findings={
        "type": "array",
        "items": record(
            severity={"enum": ["problem", "warning"]},
            rule={"type": "string", "pattern": "^[a-z_]+$"},
            message=TEXT,
            advice=TEXT,
            node=MAYBE_TEXT,
            gpu=MAYBE_TEXT,
        ),
    },
    results=record(path=TEXT, free_bytes=COUNT, total_bytes=COUNT, writable={"type": "boolean"}),
    kept={
        "anyOf": [
            {"type": "null"},
            record(pid=COUNT, since=TEXT, until=MAYBE_TEXT, devices={"type": "object"}, taken={"type": "boolean"}),
        ]
    },
    nodes={
        "type": "array",
        "items": record(
            name=TEXT,
            node=record(node_id=TEXT, host=TEXT, address=TEXT, gpus=COUNT, cpus=COUNT, label=MAYBE_TEXT),
            here={"type": "boolean"},
            facts={"type": ["object", "null"]},
            error=TEXT,
        ),
    },
)


def doctor(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the verb from another folder, on an idle machine."""
    (folder / "sitecustomize.py").write_text(IDLE, "utf-8")
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", "doctor", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    validate(found, SCHEMA)
    return found


@contextmanager
def cluster(*nodes: dict[str, Any]) -> Iterator[str]:
    """Start a cluster of such nodes; the first is its head. The command joins it at the head."""
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves files and handles to the garbage collector
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **LEAN, **nodes[0]})
        try:
            for options in nodes[1:]:
                started.add_node(num_cpus=1, **LEAN, **options)
            yield started.address
        finally:
            started.shutdown()


@contextmanager
def kept_ray() -> Iterator[tuple[Place, Use]]:
    """A kept Ray as ``doctor`` sees it: its place, with a keeper's lock and what the last command has said."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as scratch:  # a short path: there are sockets in it
        place = Place(Path(scratch) / f"gemm-orchestrator-{os.getuid()}")
        place.make()
        use = Use(pid=4711, clean=True, keep_s=300.0, devices={"CPU-head": "Xeon"})
        place.tell_use(use)
        with locked(place.keeper):
            yield place, use


def path(*folders: Path) -> dict[str, Any]:
    """Options of a node whose processes see these folders first."""
    return {"env_vars": {"PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}}


def module(folder: Path, name: str, text: str) -> Path:
    """Write a module that shadows the real one."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(IDLE, "utf-8")
    (folder / f"{name}.py").write_text(text, "utf-8")
    return folder


@pytest.mark.ray
def test_a_cpu_that_is_fit_is_shown_and_ends_with_0(tmp_path: Path) -> None:
    done = doctor(tmp_path, "conf=cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert importlib.metadata.version("ray") in done.stdout
    assert "no GPU" in done.stdout
    assert lines[-1] == "0 problems, 0 warnings on 1 node; a sweep would use the CPU of this node"
    assert not (tmp_path / "results").exists()


@pytest.mark.ray
def test_a_model_that_is_not_there_ends_with_1(tmp_path: Path) -> None:
    with kept_ray() as (place, use):
        done = doctor(tmp_path, "conf=a100", "--json", CUDA_VISIBLE_DEVICES="", TMPDIR=str(place.folder.parent))
    found = answer(done)
    assert (found["kept"]["devices"], found["kept"]["taken"]) == (use.devices, True)
    assert "kept_ray" in [finding["rule"] for finding in found["findings"]]
    assert (done.returncode, found["ok"], found["gpu"]) == (1, False, "a100")
    assert [finding["rule"] for finding in found["findings"] if finding["severity"] == "problem"] == ["no_gpu"]
    assert "no GPU that is 'a100'" in found["findings"][0]["message"]
    (node,) = found["nodes"]
    assert node["facts"]["python"].split(".")[0] == "3"
    assert (node["here"], node["error"]) == (True, "")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_each_node_of_a_cluster_answers_for_itself(tmp_path: Path) -> None:
    # One node has two made-up H200s, one another pyarrow, one hangs when it is looked at, one counts GPUs it has not.
    gpus = module(tmp_path / "gpus", "pynvml", NVML)
    skewed = module(tmp_path / "skewed", "pynvml", NVML)
    metadata = skewed / "pyarrow-1.2.3.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pyarrow\nVersion: 1.2.3\n", "utf-8")
    hanging = module(tmp_path / "hanging", "pynvml", HANGS)
    idle = module(tmp_path / "idle", "unused", "")
    nodes = (
        {"num_gpus": 2, "resources": {"first": 1}, **path(gpus)},
        {"num_gpus": 2, **path(skewed)},
        {"num_gpus": 1, **path(hanging)},
        {"num_gpus": 3, **path(idle)},
    )
    with cluster(*nodes) as address:
        done = doctor(tmp_path, "conf=h200", f"cluster.address={address}", "cluster.start_timeout_s=25", "--json")
    assert done.stderr == ""
    found = answer(done)
    assert (done.returncode, found["ok"]) == (1, False)
    by_gpus = {node["node"]["gpus"]: node for node in found["nodes"]}
    assert [node["node"]["gpus"] for node in found["nodes"]].count(2) == 2
    assert len({node["name"] for node in found["nodes"]}) == 4  # of one host, and told apart
    findings = [(finding["rule"], finding["node"]) for finding in found["findings"]]
    assert ("no_answer", by_gpus[1]["name"]) in findings
    assert by_gpus[1]["error"] == "gave no answer within 25 s"
    (counts,) = (finding for finding in found["findings"] if finding["rule"] == "gpu_count")
    assert (counts["node"], counts["severity"]) == (by_gpus[3]["name"], "problem")
    assert counts["message"].startswith("Ray counts 3 GPUs, torch sees 0 (")
    in_use = [finding for finding in found["findings"] if finding["rule"] == "gpu_in_use"]
    assert [finding["gpu"][:12] for finding in in_use] == ["GPU-00000001"] * 2
    assert {finding["severity"] for finding in in_use} == {"problem"}
    assert "somebody's training (pid 4242, 3.0 GiB)" in in_use[0]["message"]
    (skew,) = (finding for finding in found["findings"] if finding["rule"] == "version_skew")
    assert skew["message"].startswith("pyarrow differs between nodes: ")
    other = next(node["name"] for node in found["nodes"] if (node["facts"] or {}).get("pyarrow") == "1.2.3")
    assert f"1.2.3 on {other}" in skew["message"]
    # the sweep's workers do not run behind all others, and the inspection sees them as they will be
    assert {node["facts"]["niceness"] for node in found["nodes"] if node["facts"]} == {0}


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_node_that_cannot_be_inspected_says_why(tmp_path: Path) -> None:
    broken = module(tmp_path / "broken", "pynvml", "raise OSError('NVML is of another planet')")
    with cluster({}, {"num_gpus": 1, **path(broken)}) as address:
        done = doctor(tmp_path, "conf=h200", RAY_ADDRESS=address)
    assert (done.returncode, done.stderr) == (1, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    flat = " ".join(done.stdout.split())
    assert "cannot be inspected: OSError: NVML is of another planet" in flat
    assert "the cluster has no GPU that is 'h200'" in flat


@pytest.mark.ray
def test_an_interruption_ends_with_130(tmp_path: Path) -> None:
    looking = module(tmp_path / "hanging", "pynvml", f"open({str(tmp_path / 'looking')!r}, 'w').close()\n{HANGS}")
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "doctor", "conf=cpu"],
        cwd=tmp_path,
        env={**os.environ, **path(looking)["env_vars"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until = time.monotonic() + 60
        while not (tmp_path / "looking").exists() and time.monotonic() < until:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["conf=h10"], "unknown sweep 'h10'"),
        (["space.hh=4"], "unknown key 'space.hh'"),
        (["--jsn"], "unrecognized arguments: --jsn"),
        (["conf=cpu", "run.dir=" + "n" * 300], "File name too long"),
        (["cluster.address=ray://head:10001"], "Ray Client (ray://) is not supported"),
        (["cluster.address=127.0.0.1:1"], "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_looked_at_ends_with_2(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    try:
        code = cli.main(["doctor", *words])
    except SystemExit as left:
        code = int(left.code or 0)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert message in err


def shown(found: Fleet, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    show(found, examine(found), console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return text


def test_the_tables_hold_each_node_and_gpu_within_80_columns() -> None:
    text = shown(healthy())
    for name in ("head", "one", "two"):
        assert name in text
    for number in (0, 1, 8, 9):
        assert f"GPU-{number:08x}" in text
    for cell in ("139/140", "345/1980", "700/700", "2.60.0", "580.95.05", "1.5/64"):
        assert cell in text
    assert text.splitlines()[-1] == "0 problems, 0 warnings on 3 nodes; a sweep would use 4 GPUs"


def test_long_names_and_markup_are_kept_within_the_terminal() -> None:
    name = "gpu-node-with-a-very-long-name-0123456789.cluster.example.com/abcdef"
    process = GpuProcess(pid=1, name="[red]python[/red] " + "x" * 100, memory_bytes=1)
    gpus = (gpu(0, name="NVIDIA RTX 6000 Ada Generation", processes=(process,)),)
    known = facts(gpus, torch=torch(gpus, version="2.13.0a0+git1234567.nv25.10"))
    found = replace(healthy(), reports=(replace(report(name, known), name=name, here=True),), gpu="any")
    for width in (60, 80, 120):
        text = shown(found, width)
        assert "[red]python[/red]" in " ".join(text.split())


def test_a_node_without_an_answer_and_a_gpu_without_facts_are_shown() -> None:
    silent = report("two", None, gpus=8, error="gave no answer within 60 s")
    unknown = type(gpu())(uuid="GPU-77")
    found = replace(healthy(), reports=(report("one", facts((unknown,)), here=True), silent))
    text = shown(found)
    assert "8/?" in text
    assert "-/-" in text
    assert "gave no answer within 60 s" in text


def test_the_disk_of_the_results_is_that_of_the_nearest_directory(tmp_path: Path) -> None:
    found = results_disk(str(tmp_path / "not" / "yet"))
    assert found is not None
    assert (found.path, found.writable) == (str(tmp_path / "not" / "yet"), True)
    assert 0 < found.free_bytes <= found.total_bytes
    (tmp_path / "file").write_text("")
    blocked = results_disk(str(tmp_path / "file" / "deeper"))
    assert blocked is not None
    assert not blocked.writable
    assert results_disk("s3://bucket/results") is None
