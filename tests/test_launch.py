"""The ways of docs/launch.md, done for real on this host: nodes started by hand, and a job that is submitted."""

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ranking import rank
from orchestrator.store import RunStore
from tests.builders import read_ranking
from tests.launching import (
    ROOT,
    SCRIPTS,
    SMALL_SPACE,
    Launch,
    free_port,
    launch,
    node_options,
    wait_for,
    wait_for_port,
    wait_for_shard,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow]

REQUIREMENTS = ROOT / "tests" / "job-server.txt"
LONG_SPACE = (
    *("conf=cpu", "space.h={start: 128, stop: 640, step: 8}", "space.tp=1", "space.roles=seed_bmm"),
    *("timing.goal=full", "timing.max_seconds=2", "timing.max_rounds=100000", "timing.tie_pct=0"),
)
"""Families of two seconds: one is in flight whenever the sweep is stopped."""


def job_server_packages(own: Path) -> Path:
    """Return the folder that ``make install`` has put the job server's packages into, else ``own``, filled by pip."""
    pins = [line.split("==") for line in REQUIREMENTS.read_text().split() if "==" in line]
    for folder in (Path(sys.prefix) / "job-server", own):
        installed = importlib.metadata.distributions(path=[str(folder)])
        found = {re.sub(r"[-_.]+", "_", item.metadata["Name"]).lower(): item.version for item in installed}
        if all(found.get(name) == version for name, version in pins):
            return folder
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    done = subprocess.run(
        [*pip, "--target", str(own), "--requirement", str(REQUIREMENTS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        pytest.skip(f"the job server's packages are not here, and pip cannot fetch them: {done.stderr.strip()}")
    return own


@pytest.fixture(scope="module")
def job_cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """One head, started by docs/launch/ray-start.sh, with its job server."""
    cache = getattr(pytestconfig, "cache", None)  # it can be switched off
    own = cache.mkdir("job-server") if cache else tmp_path_factory.mktemp("job-server")
    port, server, client = free_port(), free_port(), free_port()
    with launch(
        PYTHONPATH=str(job_server_packages(own)),
        RAY_API_SERVER_ADDRESS=f"http://127.0.0.1:{server}",
        RAY_PORT=str(port),
    ) as launched:
        options = (f"--dashboard-port={server}", f"--ray-client-server-port={client}", "--num-cpus=1", "--num-gpus=0")
        head = launched.popen("bash", str(SCRIPTS / "ray-start.sh"), "head", *options, *node_options())
        wait_for_port(server, launched, head)
        yield launched


def test_a_job_runs_the_whole_sweep(job_cluster: Launch, tmp_path: Path) -> None:
    done = job_cluster.run("bash", str(SCRIPTS / "submit.sh"), str(tmp_path), "it", *SMALL_SPACE, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Job 'raysubmit_\w+' succeeded", done.stdout)
    assert f"next: python -m orchestrator report {tmp_path}/it" in done.stdout
    store = RunStore.open(tmp_path / "it")
    assert store.manifest()["status"] == "finished"
    rows = read_ranking(store).to_pylist()
    assert len(rows) == 12  # two roles, six d_ff
    assert {row["status"] for row in rows} == {"ok"}
    listed = job_cluster.run("ray", "job", "list")
    assert "SUCCEEDED" in listed.stdout


def test_a_job_that_is_stopped_ranks_what_it_has(job_cluster: Launch, tmp_path: Path) -> None:
    submitted = job_cluster.popen("bash", str(SCRIPTS / "submit.sh"), str(tmp_path), "it", *LONG_SPACE)
    wait_for_shard(tmp_path / "it", job_cluster, submitted)
    job = re.findall(r"raysubmit_\w+", job_cluster.logs())[-1]
    stopped = job_cluster.run("ray", "job", "stop", job)
    assert stopped.returncode == 0, stopped.stderr
    submitted.wait(30)
    store = RunStore.open(tmp_path / "it")
    assert store.manifest()["status"] == "interrupted"
    reasons = {row["stop_reason"] for row in store.reader().facts().table.to_pylist()}
    assert "interrupted" in reasons  # the Family in flight is kept too
    assert rank(store).problems == ()
    assert {row["status"] for row in read_ranking(store).to_pylist()} == {"ok"}
    assert not list(tmp_path.glob("it/shards/*/*/.*"))


def test_a_job_without_the_token_is_refused(job_cluster: Launch, tmp_path: Path) -> None:
    words = ("bash", str(SCRIPTS / "submit.sh"), str(tmp_path), "it", *SMALL_SPACE)
    done = job_cluster.run(*words, RAY_AUTH_TOKEN="f" * 64)
    assert done.returncode != 0
    assert "authentication" in (done.stderr + done.stdout).lower()
    assert list(tmp_path.iterdir()) == []


SITE = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("omegaconf", "antlr4", "rich", "pynvml", "conf"):
            raise ModuleNotFoundError(f"No module named {name!r}: not on this node", name=name)

sys.meta_path.insert(0, Absent())
# an editable install of the project
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]
"""
"""What makes a node's Python one without this project and what only the driver needs."""

SWEEP = """
import json, sys
from pathlib import Path
from orchestrator import cluster
from orchestrator.schema import Cluster
from tests.fakes import bundle
from tests.test_driver import facts, run

out = Path(sys.argv[1])
with cluster.connect(Cluster()) as own_ray:
    nodes = cluster.nodes()
    result = run(out, [bundle(h) for h in range(201, 233)])
rows = facts(out)
print(json.dumps({
    "own": own_ray,
    "nodes": sorted(node.gpus for node in nodes),
    "code": result.exit_code,
    "devices": sorted(device.uuid for device in result.devices),
    "bundles": len({row["bundle_id"] for row in rows}),
    "statuses": sorted({row["status"] for row in rows}),
}))
"""


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Launch]:
    """A head and a worker by docs/launch/ray-start.sh, each with two made-up GPUs, in a Python without the project."""
    port = free_port()
    with launch(RAY_PORT=str(port)) as launched:
        site = launched.folder / "site"
        (site / "tests").mkdir(parents=True)
        (site / "sitecustomize.py").write_text(SITE)
        (site / "tests" / "fakes.py").write_text((ROOT / "tests" / "fakes.py").read_text())
        start = ("bash", str(SCRIPTS / "ray-start.sh"))
        options = ("--num-cpus=1", "--num-gpus=2")
        only_site = {"PYTHONPATH": str(site), "FAKE_MARKER": str(launched.folder / "died")}
        head = launched.popen(
            *start,
            *("head", "--include-dashboard=false", *options, *node_options()),
            CUDA_VISIBLE_DEVICES="0,1",
            **only_site,
        )
        wait_for_port(port, launched, head)
        worker = launched.popen(
            *start, "worker", "127.0.0.1", *options, *node_options(), CUDA_VISIBLE_DEVICES="2,3", **only_site
        )
        wait_for(lambda: launched.logs().count("Ray runtime started") == 2, launched, worker)
        launched.environment |= {"RAY_ADDRESS": f"127.0.0.1:{port}", "PYTHONPATH": str(ROOT)}
        yield launched


def test_nodes_started_by_hand_measure_with_code_that_the_driver_sends(two_nodes: Launch, tmp_path: Path) -> None:
    done = two_nodes.run(sys.executable, "-c", SWEEP, str(tmp_path))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    devices = set(report.pop("devices"))
    assert report == {"own": False, "nodes": [2, 2], "code": 0, "bundles": 32, "statuses": ["ok"]}
    head, worker = {"GPU-fake-0", "GPU-fake-1"}, {"GPU-fake-2", "GPU-fake-3"}
    assert devices <= head | worker
    assert devices & head
    assert devices & worker


def test_the_whole_job_runs_on_a_cluster_by_its_address(two_nodes: Launch, tmp_path: Path) -> None:
    script = str(SCRIPTS / "start-or-resume.sh")
    done = two_nodes.run("bash", script, str(tmp_path), "it", *SMALL_SPACE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(read_ranking(RunStore.open(tmp_path / "it"))) == 12


def test_a_driver_without_the_token_is_refused(two_nodes: Launch, tmp_path: Path) -> None:
    done = two_nodes.run(
        "bash", str(SCRIPTS / "start-or-resume.sh"), str(tmp_path), "it", *SMALL_SPACE, RAY_AUTH_TOKEN="f" * 64
    )
    assert done.returncode == 2
    assert "RAY_AUTH_TOKEN must be" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_node_is_not_started_without_a_token() -> None:
    with launch(RAY_AUTH_TOKEN="") as launched:
        done = launched.run("bash", str(SCRIPTS / "ray-start.sh"), "head")
    assert done.returncode == 2
    assert "RAY_AUTH_TOKEN is not set" in done.stderr
