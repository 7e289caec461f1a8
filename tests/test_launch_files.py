"""The files of docs/launch: what can be checked of them without a cluster."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.launching import BIN, ROOT, SCRIPTS, launch

SHELL = sorted(SCRIPTS.glob("*.sh"))
DOCS = (ROOT / "docs" / "launch.md").read_text()

# The fields that docs/launch/rayjob.yaml may use, of KubeRay's API reference for ray.io/v1.
RAY_JOB = {
    *(
        "activeDeadlineSeconds",
        "backoffLimit",
        "clusterSelector",
        "deletionStrategy",
        "entrypoint",
        "entrypointNumCpus",
    ),
    *("entrypointNumGpus", "entrypointResources", "jobId", "managedBy", "metadata", "rayClusterSpec", "runtimeEnvYAML"),
    *("shutdownAfterJobFinishes", "submissionMode", "submitterConfig", "submitterPodTemplate", "suspend"),
    "ttlSecondsAfterFinished",
}
RAY_CLUSTER = {
    *("authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions", "headGroupSpec"),
    *("headServiceAnnotations", "managedBy", "rayVersion", "suspend", "workerGroupSpecs"),
}
HEAD_GROUP = {"template", "headService", "enableIngress", "rayStartParams", "serviceType"}
WORKER_GROUP = {
    *("groupName", "idleTimeoutSeconds", "maxReplicas", "minReplicas", "numOfHosts", "rayStartParams", "replicas"),
    *("scaleStrategy", "suspend", "template"),
}
SBATCH = {
    *(
        "job-name",
        "nodes",
        "exclusive",
        "ntasks-per-node",
        "cpus-per-task",
        "gpus-per-node",
        "time",
        "signal",
        "requeue",
    ),
    *("open-mode", "output"),
}


def pins() -> dict[str, str]:
    return dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())


def ray_job() -> dict[str, Any]:
    found = {item["kind"]: item for item in yaml.safe_load_all((SCRIPTS / "rayjob.yaml").read_text())}
    return dict(found["RayJob"])


@cache
def options_of(*command: str) -> set[str]:
    done = subprocess.run(
        [str(BIN / "ray"), *command, "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", done.stdout))


def test_every_file_is_told_of_and_every_file_told_of_is_there() -> None:
    linked = set(re.findall(r"\(launch/([^)]+)\)", DOCS))
    assert linked - {""} == {path.name for path in SCRIPTS.iterdir()}


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_shell_files_parse(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("ray-start.sh", ("start",)),
        ("submit.sh", ("job", "submit")),
        ("slurm.sh", ("symmetric-run",)),
    ],
)
def test_ray_knows_the_options_that_are_used(script: str, command: tuple[str, ...]) -> None:
    text = re.sub(r"#.*", "", (SCRIPTS / script).read_text()).replace("\\\n", " ")
    calls = re.findall(rf"ray {' '.join(command)} (.*?) --(?:\s|$)|ray {' '.join(command)} (.*)", text)
    used = {option for call in calls for option in re.findall(r"--[a-z][a-z-]+", "".join(call))}
    known = options_of(*command) | (options_of("start") if command == ("symmetric-run",) else set())
    assert used
    assert used <= known


def test_options_of_ray_start_in_the_text_exist() -> None:
    hand = DOCS.partition("## Several nodes, by hand")[2].partition("\n## ")[0]
    assert set(re.findall(r"--[a-z][a-z-]+", hand)) <= options_of("start")
    assert "--dashboard-host" in options_of("start")


@pytest.mark.parametrize("script", ["start-or-resume.sh", "submit.sh"])
@pytest.mark.parametrize("words", [(), ("results",), ("results", "conf=cpu"), ("conf=cpu", "name")])
def test_a_missing_directory_or_name_is_refused(script: str, words: tuple[str, ...]) -> None:
    with launch() as launched:
        done = launched.run("bash", str(SCRIPTS / script), *words)
    assert done.returncode == 2
    assert "usage: " in done.stderr


def test_a_job_may_not_write_into_its_own_directory() -> None:
    with launch() as launched:
        done = launched.run("bash", str(SCRIPTS / "submit.sh"), "results", "name")
    assert done.returncode == 2
    assert "give an absolute path on the head node, or a URI" in done.stderr


def test_start_or_resume_begins_what_is_new_and_continues_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\nexec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    script = ("bash", str(SCRIPTS / "start-or-resume.sh"))
    with launch() as launched:
        launched.environment["PATH"] = f"{tmp_path}:{launched.environment['PATH']}"
        launched.run(*script, str(ROOT / "results" / "examples"), "h200-seed-and-mlp", "--cfg")
        launched.run(*script, str(ROOT / "results" / "examples"), "another", "--cfg")
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if "status" not in line]
    assert [call.split()[-1] for call in calls] == ["resume=h200-seed-and-mlp", "run.name=another"]


def test_the_batch_script_asks_slurm_for_what_slurm_knows() -> None:
    asked = re.findall(r"^#SBATCH --([a-z-]+)(=\S+)?$", (SCRIPTS / "slurm.sh").read_text(), re.MULTILINE)
    assert {name for name, _ in asked} == SBATCH
    assert dict(asked)["signal"] == "=B:TERM@300"


def test_the_rayjob_has_the_fields_of_its_kind() -> None:
    job = ray_job()
    assert job["apiVersion"] == "ray.io/v1"
    assert set(job["spec"]) <= RAY_JOB
    cluster = job["spec"]["rayClusterSpec"]
    assert set(cluster) <= RAY_CLUSTER
    assert set(cluster["headGroupSpec"]) <= HEAD_GROUP
    assert cluster["authOptions"] == {"mode": "token"}
    for group in cluster["workerGroupSpecs"]:
        assert set(group) <= WORKER_GROUP
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert {f"--{name}" for name in group["rayStartParams"]} <= options_of("start")
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_the_rayjobs_pods_fit_together() -> None:
    claim, job = yaml.safe_load_all((SCRIPTS / "rayjob.yaml").read_text())
    cluster = job["spec"]["rayClusterSpec"]
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    containers = [container for pod in pods for container in pod["containers"]]
    assert len({container["image"] for container in containers}) == 1
    for container in containers:
        assert container["resources"]["requests"] == container["resources"]["limits"]
    assert all("nvidia.com/gpu" in container["resources"]["limits"] for container in containers[1:])
    head = pods[0]
    assert head["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    mounts = {mount["name"]: mount["mountPath"] for mount in head["containers"][0]["volumeMounts"]}
    words = job["spec"]["entrypoint"].split()
    assert words[2] == mounts[head["volumes"][0]["name"]]


def test_the_image_has_the_versions_that_are_pinned_and_the_file_that_the_job_runs() -> None:
    job = ray_job()
    image = (SCRIPTS / "Dockerfile").read_text()
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == pins()["ray"]
    assert "--constraint constraints.txt 'ray[default]' ." in image
    folder = re.findall(r"^WORKDIR (\S+)$", image, re.MULTILINE)[-1]
    script = job["spec"]["entrypoint"].split()[1]
    assert script.startswith(f"{folder}/docs/launch/")
    assert (ROOT / script.removeprefix(f"{folder}/")).is_file()
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", image, re.MULTILINE) for word in line.split()]
    assert all((ROOT / name).exists() for name in copied)
    assert {"orchestrator", "tasks", "conf", "docs/launch", "pyproject.toml", "constraints.txt"} <= set(copied)
