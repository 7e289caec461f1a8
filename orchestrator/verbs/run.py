"""``run``: plan, measure, rank, print and write a sweep."""

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import __version__, cluster
from orchestrator import config as configuration
from orchestrator.errors import StoreError
from orchestrator.schema import Config
from orchestrator.space import Expansion, expand_space, plan_hash, reasons
from orchestrator.verbs.common import add_sweep, configured, printed_cfg

if TYPE_CHECKING:
    from orchestrator.store import RunStore

log = logging.getLogger(__name__)

EXAMPLES = 3
"""Skips of each kind that the manifest shows."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_sweep(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the sweep; the exit code tells how it ended."""
    config = configured(arguments)
    if printed_cfg(arguments, config):
        return 0
    expansion = expand_space(config)
    check_place(config)
    log.info("starting Ray")
    modules = ("orchestrator.driver", "orchestrator.ranking", "orchestrator.terminal")
    with cluster.connect(config.cluster, modules) as own_ray:
        log.info("connected")
        if config.cluster.gpu == "auto" and not cluster.accelerators():
            config = _fallback(config)
            expansion = expand_space(config)
        return _sweep(config, expansion, own_ray=own_ray)


def check_place(config: Config) -> None:
    """Raise StoreError where the run cannot be created: better now than after the cluster has started."""
    results = Path(config.run.dir)
    existing = next(path for path in (results.absolute(), *results.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise StoreError(f"run.dir={results}: {existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StoreError(f"run.dir={results}: {existing} is not writable")
    if config.run.name is not None and (results / config.run.name).exists():
        raise StoreError(f"run {results / config.run.name} exists already: choose another run.name")


def _fallback(config: Config) -> Config:
    """The sweep for a cluster without accelerators."""
    from orchestrator.errors import ClusterError

    if config.cluster.fallback is None:
        raise ClusterError(cluster.complaint("the cluster has no GPU", "auto", cluster.nodes()))
    sys.stderr.write(f"no accelerator in the cluster: conf={config.cluster.fallback}\n")
    return configuration.compose(config.cluster.fallback, config.overrides)


def _sweep(config: Config, expansion: Expansion, *, own_ray: bool) -> int:
    from rich.console import Console

    from orchestrator import progress
    from orchestrator.driver import sweep
    from orchestrator.ranking import rank
    from orchestrator.store import RunStore
    from orchestrator.terminal import markdown, show

    hashed = plan_hash(config, expansion)
    if config.cluster.gpu != "cpu":
        cluster.require(config.cluster.gpu, cluster.nodes())
    store = RunStore.create(config.run.dir, run_name(config), _manifest(config, expansion, hashed))
    with _settled(store):
        with progress.show(expansion.bundles, Console(stderr=True)) as board:
            result = sweep(
                config,
                expansion.bundles,
                store,
                progress=board,
                code_version=__version__,
                plan_hash=hashed,
                own_ray=own_ray,
            )
        log.info("swept")
        ranking = rank(store)
        log.info("ranked")
        store.write_ranking(ranking.table, markdown(store.path, ranking.table, config.rank.top))
        store.update_manifest(
            ended_utc=_now(),
            status="interrupted" if result.interrupted else "unfinished" if result.unfinished else "finished",
            bundles_ended=result.bundles,
            bundles_unfinished=result.unfinished,
            failures=len(result.failures),
            skipped_on_device=len(result.skipped),
            hosts=sorted({device.host for device in result.devices}),
            devices=[f"{device.gpu} {device.uuid}" for device in result.devices],
        )
    problems = [*ranking.problems, *([result.problem] if result.problem else [])]
    show(store.path, ranking.table, config.rank.top, problems)
    return result.exit_code or int(bool(ranking.problems))


@contextmanager
def _settled(store: "RunStore") -> Iterator[None]:
    """Where a sweep breaks off, leave no empty run behind, and none that says it is running."""
    try:
        yield
    except BaseException:
        if store.shard_paths():
            with suppress(StoreError):  # the disk may be what broke
                store.update_manifest(ended_utc=_now(), status="failed")
        else:
            store.discard()
        raise


def run_name(config: Config) -> str:
    """The run's name: the user's, or the sweep's with the time."""
    return config.run.name or f"{config.conf_name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _manifest(config: Config, expansion: Expansion, hashed: str) -> dict[str, Any]:
    kinds = reasons(expansion.skips)
    return {
        "plan_hash": hashed,
        "conf": config.conf_name,
        "overrides": list(config.overrides),
        "config": configuration.to_dict(config),
        "code_version": __version__,
        "started_utc": _now(),
        "status": "running",
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
