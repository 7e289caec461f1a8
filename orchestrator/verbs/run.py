"""``run``: plan, measure, rank, print and write a sweep."""

import argparse
import logging
import os
import re
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator import __version__, cluster, resumption
from orchestrator import config as configuration
from orchestrator.errors import ResumeError, StoreError
from orchestrator.results import Results, results
from orchestrator.schema import Config
from orchestrator.space import Expansion, expand_space, plan_hash, reasons
from orchestrator.verbs.common import add_sweep, configured, printed_cfg

if TYPE_CHECKING:
    from orchestrator.driver import SweepResult
    from orchestrator.resume import Former
    from orchestrator.store import RunStore

log = logging.getLogger(__name__)

MODULES = ("orchestrator.driver", "orchestrator.ranking", "orchestrator.terminal")
"""What a sweep needs later, imported while Ray starts."""

RESUME_HELP = """\
resume=latest, resume=RUN  go on with a run: what it measured stays, the rest is measured
retry=failed, retry=oom,…  with resume: families with such failures are measured again
resume_anyway=true         with resume: although the plan or the versions differ"""

EXAMPLES = 3
"""Skips of each kind that the manifest shows."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_sweep(parser)
    parser.epilog = f"{RESUME_HELP}\n\n{parser.epilog}"


def execute(arguments: argparse.Namespace) -> int:
    """Run the sweep; the exit code tells how it ended."""
    wish = resumption.wish(arguments.words)
    if wish is not None:
        return _resume(arguments, wish)
    config = configured(arguments)
    if printed_cfg(arguments, config):
        return 0
    expansion = expand_space(config)
    with results(config.run) as place:
        place.check(config.run.name)  # better now than after the cluster has started
        log.info("starting Ray")
        with cluster.connect(config.cluster, MODULES) as own_ray:
            log.info("connected")
            if config.cluster.gpu == "auto" and not cluster.accelerators():
                config = _fallback(config)
                expansion = expand_space(config)
            if config.cluster.gpu != "cpu":
                cluster.require(config.cluster.gpu, cluster.nodes())
            store, result = _sweep(config, expansion, place, own_ray=own_ray)
        # What Ray prints until it has ended is kept from standard output, so the tables come after it.
        return _finished(place, _conclude(config, store, result))


def _resume(arguments: argparse.Namespace, wish: "resumption.Wish") -> int:
    """Go on with a run; nothing of it is measured again."""
    chosen = resumption.choose(wish)
    config = chosen.config
    if printed_cfg(arguments, config):
        return 0
    with results(config.run) as place:
        store = place.open(chosen.name)
        with store.locked():
            former = resumption.prepare(store, chosen, wish)
            if former is None:
                return _finished(place, _nothing_to_do(config, store))
            log.info("starting Ray")
            with cluster.connect(config.cluster, MODULES) as own_ray, suspended(store):
                if config.cluster.gpu != "cpu":
                    cluster.require(config.cluster.gpu, cluster.nodes())
                result = _measure(config, chosen.expansion, store, own_ray=own_ray, former=former)
            code = _conclude(config, store, result, former)
        return _finished(place, code)


def _finished(place: Results, code: int) -> int:
    """Bring the run to where the user wants it; the exit code is 1 where it does not get there."""
    problems = place.finish()
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return code or int(bool(problems))


def _nothing_to_do(config: Config, store: "RunStore") -> int:
    sys.stderr.write(f"{store.path}: nothing to do: every family has been measured or has failed\n")
    _show(config, store)
    return 0


def _fallback(config: Config) -> Config:
    """The sweep for a cluster without accelerators."""
    from orchestrator.errors import ClusterError

    if config.cluster.fallback is None:
        raise ClusterError(cluster.complaint("the cluster has no GPU", "auto", cluster.nodes()))
    sys.stderr.write(f"no accelerator in the cluster: conf={config.cluster.fallback}\n")
    return configuration.compose(config.cluster.fallback, config.overrides)


def _sweep(config: Config, expansion: Expansion, place: Results, *, own_ray: bool) -> tuple["RunStore", "SweepResult"]:
    store = place.create(run_name(config), _manifest(config, expansion))
    with store.locked(), broken_off(config, store):
        return store, _measure(config, expansion, store, own_ray=own_ray)


def _measure(
    config: Config, expansion: Expansion, store: "RunStore", *, own_ray: bool, former: "Former | None" = None
) -> "SweepResult":
    from rich.console import Console

    from orchestrator import progress
    from orchestrator.driver import sweep

    with progress.show(expansion.bundles, Console(stderr=True)) as board:
        result = sweep(
            config,
            expansion.bundles,
            store,
            progress=board,
            code_version=__version__,
            plan_hash=plan_hash(config, expansion),
            own_ray=own_ray,
            former=former,
        )
    log.info("swept")
    return result


def _conclude(config: Config, store: "RunStore", result: "SweepResult", former: "Former | None" = None) -> int:
    """Rank, write and print; the exit code tells how the sweep ended."""
    from orchestrator.ranking import rank
    from orchestrator.suspects import STATUS as SUSPECT
    from orchestrator.terminal import markdown, show

    if result.interrupted and not store.shard_paths():
        store.discard()
        sys.stderr.write("interrupted before anything was measured: no run is kept\n")
        return result.exit_code
    with broken_off(config, store):
        ranking = rank(store)
        store.write_ranking(
            ranking.table,
            markdown(store.path, ranking.table, config.rank.top, notes=ranking.notes, fleets=ranking.fleets),
        )
        store.update_manifest(
            ended_utc=_now(),
            status="interrupted" if result.interrupted else "unfinished" if result.unfinished else "finished",
            bundles_ended=result.bundles + (former.bundles if former else 0),
            bundles_unfinished=result.unfinished,
            failures=len(result.failures),
            skipped_on_device=len(result.skipped),
            hosts=sorted({device.host for device in result.devices}),
            devices=[f"{device.gpu} {device.uuid}" for device in result.devices],
        )
    problems = [*ranking.problems, *([result.problem] if result.problem else [])]
    if result.unfinished:
        problems.append(
            f"not all: {result.unfinished} bundles were not measured; go on with: "
            f"python -m orchestrator resume={shlex.quote(str(store.path))}"
        )
    show(store.path, ranking.table, config.rank.top, problems, notes=ranking.notes, fleets=ranking.fleets)
    statuses = set(ranking.table["status"].to_pylist())
    return result.exit_code or int(bool(ranking.problems) or "ok" not in statuses or SUSPECT in statuses)


@contextmanager
def broken_off(config: Config, store: "RunStore") -> Iterator[None]:
    """Where a run breaks off, leave no empty one behind, and none that says it is running; show what was measured."""
    try:
        yield
    except BaseException as error:
        if not store.shard_paths():
            store.discard()
            raise
        with suppress(StoreError):  # the disk may be what broke
            store.update_manifest(ended_utc=_now(), status="failed")
        if isinstance(error, StoreError):
            _show(config, store)
        raise


@contextmanager
def suspended(store: "RunStore") -> Iterator[None]:
    """Where a resumed run breaks off, leave no manifest that says it is running."""
    before = store.manifest()
    try:
        yield
    except ResumeError:
        store.write_manifest(before)
        raise
    except BaseException:
        with suppress(StoreError):
            store.update_manifest(ended_utc=_now(), status="failed")
        raise


def _show(config: Config, store: "RunStore") -> None:
    from orchestrator.ranking import rank
    from orchestrator.terminal import show

    ranking = rank(store)
    top = config.rank.top
    show(store.path, ranking.table, top, ranking.problems, notes=ranking.notes, fleets=ranking.fleets)


def run_name(config: Config) -> str:
    """The run's name: the user's, or the sweep's with the time."""
    conf = re.sub(r"[^A-Za-z0-9._+-]+", "-", config.conf_name).strip("-.") or "sweep"
    return config.run.name or f"{conf}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _manifest(config: Config, expansion: Expansion) -> dict[str, Any]:
    kinds = reasons(expansion.skips)
    return {
        "plan_hash": plan_hash(config, expansion),
        "conf": config.conf_name,
        "overrides": list(config.overrides),
        "config": configuration.to_dict(config),
        "code_version": __version__,
        "started_utc": _now(),
        "status": "running",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "points": expansion.points,
        "families": len(expansion.families),
        "bundles": len(expansion.bundles),
        "gemms": expansion.gemms,
        "skips": [
            {
                "kind": kind,
                "count": count,
                "examples": [skip.reason for skip in expansion.skips if skip.kind == kind][:EXAMPLES],
            }
            for kind, count in kinds.items()
        ],
    }
