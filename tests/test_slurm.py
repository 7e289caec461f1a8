"""docs/launch/slurm.sh with a Slurm of one node that runs its steps on this host, and the real `ray symmetric-run`."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.store import RunStore
from tests.jobs import HOOKS
from tests.launching import BIN, SCRIPTS, Launch, free_port, launch, wait_for_shard

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SRUN = """#!/usr/bin/env bash
# Options are of the form --name=value; what follows them is the command.
while [[ $1 == --* ]]; do echo "$1" >>"$HOME/srun"; shift; done
exec "$@"
"""
SCONTROL = """#!/usr/bin/env bash
echo "$*" >>"$HOME/scontrol"
"""
RAY = f"""#!/usr/bin/env bash
# What looks at the whole host looks at this test's processes alone: `ray symmetric-run` refuses to start where any Ray
# runs, and `ray stop` ends all of them.
case $1 in
stop) exec {sys.executable} -c "$STOP" ;;
symmetric-run) exec {sys.executable} -c "$SYMMETRIC_RUN" "$@" ;;
*) exec {BIN}/ray "$@" ;;
esac
"""
SYMMETRIC_RUN = """
import ray.scripts.symmetric_run
from ray.scripts.scripts import main
ray.scripts.symmetric_run.check_ray_already_started = lambda: False
main()
"""
STOP = """
import os, sys
sys.path.insert(0, os.environ["TESTS_ROOT"])
from tests.launching import MARK, stop_ray
stop_ray(os.environ[MARK])
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Launch]:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL, "ray": RAY}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    with launch(
        SLURM_JOB_ID="4711",
        SLURM_JOB_NUM_NODES="1",
        SLURM_CPUS_PER_TASK="1",
        RESULTS=str(tmp_path / "results"),
        RAY_PORT=str(free_port()),
        STOP=STOP,
        SYMMETRIC_RUN=SYMMETRIC_RUN,
        TESTS_ROOT=str(SCRIPTS.parents[1]),
        PYTHONPATH=str(HOOKS),
        FAULT_JOURNAL=str(tmp_path / "journal"),
        FAULT_PACE_S="0.5",  # a Family takes so long, without the CPU's time
    ) as launched:
        launched.environment["PATH"] = f"{commands}{os.pathsep}{launched.environment['PATH']}"
        yield launched


def test_a_job_whose_time_is_up_is_queued_again_and_runs_the_whole_sweep(slurm: Launch, tmp_path: Path) -> None:
    space = ("conf=cpu", "space.h={start: 128, stop: 208, step: 8}", "space.tp=1", "space.roles=seed_bmm")
    command = ("bash", str(SCRIPTS / "slurm.sh"), *space, "timing.max_rounds=10")
    run = tmp_path / "results" / "slurm-4711"
    job = slurm.popen(*command)
    wait_for_shard(run, slurm, job)
    job.send_signal(signal.SIGTERM)  # Slurm signals the batch shell alone
    assert job.wait(60) == 130, slurm.logs()
    store = RunStore.open(run)
    assert store.manifest()["status"] == "interrupted"
    assert {row["status"] for row in store.read_ranking().to_pylist()} == {"ok"}
    assert (slurm.folder / "scontrol").read_text() == "requeue 4711\n"
    assert "--kill-on-bad-exit=1" in (slurm.folder / "srun").read_text()
    first = {path.name for path in store.shard_paths()}
    code = slurm.popen(*command).wait(100)
    assert code == 0, slurm.logs()
    assert (slurm.folder / "scontrol").read_text() == "requeue 4711\n"  # a job that is done is not queued again
    assert store.manifest()["status"] == "finished"
    assert first <= {path.name for path in store.shard_paths()}
    assert len({row["h"] for row in store.read_ranking().to_pylist()}) == 11
