"""``run``: plan, measure, rank, print and write a sweep."""

import argparse
import importlib
import itertools
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator import __version__, cluster, resumption
from orchestrator import config as configuration
from orchestrator.errors import RunExistsError, StoreError, shorten
from orchestrator.forms import TABLES
from orchestrator.interrupts import INTERRUPTED, Interrupts, interruptible, starting
from orchestrator.kept import Hold, held
from orchestrator.kept_now import RELEASE, holding
from orchestrator.laps import Laps, told
from orchestrator.results import Results, results
from orchestrator.rules import Switch, Text
from orchestrator.schema import Config
from orchestrator.space import Expansion, expand_space, plan_hash, reasons
from orchestrator.verbs.common import DEFAULT_CONF, add_sweep, configured, printed_cfg
from orchestrator.words import Key

if TYPE_CHECKING:
    from orchestrator.driver import SweepResult
    from orchestrator.resume import Former
    from orchestrator.store import RunStore

log = logging.getLogger(__name__)

MODULES = ("orchestrator.driver",)
"""What a sweep begins with, imported while Ray starts."""
AFTERWARDS = "orchestrator.ranked_run"
AFTERWARDS_S = 0.3
"""What it ends with, imported so long after its beginning: a kept worker has its work by then, and the driver waits."""

RESUME_HELP = """\
resume=latest, resume=RUN  go on with a run: what it measured stays, the rest is measured
retry=failed, retry=oom,…  with resume: families with such failures are measured again
resume_anyway=true         with resume: although the plan or the versions differ"""

CONF_LENGTH = 80
"""Letters of the sweep's name that the run's name takes: a file's name has 255 in all."""
KEEP_S = 300
"""For how long ``--keep`` keeps what nobody uses."""
RANKING = "the whole ranking instead of its tables"
RESUMING = {
    "resume": Key(rule=Text(), help="a run to go on with"),
    "retry": Key(rule=Text(), help="with resume: failures that are measured again"),
    "resume_anyway": Key(rule=Switch(), help="with resume: although the plan or the versions differ"),
}
OF_RAY = ("address", "start_timeout_s", "keep_s")
"""Keys of ``cluster`` that are not about what is measured on."""
EXAMPLES = 3
"""Skips of each kind that the manifest shows."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_sweep(parser, as_json=RANKING, as_csv=f"{RANKING}, a row a candidate,", more=RESUMING)
    parser.add_argument("--keep", action="store_true", help=f"keep Ray and the opened devices: cluster.keep_s={KEEP_S}")
    parser.epilog = f"{RESUME_HELP}\n\n{parser.epilog}"


def execute(arguments: argparse.Namespace) -> int:
    """Run the sweep; the exit code tells how it ended."""
    laps = Laps()
    if arguments.keep and not any(word.startswith("cluster.keep_s=") for word in arguments.words):
        arguments.words.append(f"cluster.keep_s={KEEP_S}")
    wish = resumption.wish(arguments.words)
    if wish is not None:
        return _resume(arguments, wish, laps)
    config = configured(arguments)
    if printed_cfg(arguments, config):
        return 0
    expansion = expand_space(config)
    sys.stderr.writelines(f"{config.space.model}: {note}\n" for note in configuration.model_notes(config))
    with results(config.run) as place:
        place.check(config.run.name)  # better now than after the cluster has started
        return _finished(place, _run(config, expansion, place, arguments.form, laps))


def _run(config: Config, expansion: Expansion, place: Results, form: str, laps: Laps) -> int:
    with ExitStack() as outer:
        with _connected(config, outer, laps) as (own_ray, interrupts, hold):
            if config.cluster.gpu == "auto" and not cluster.accelerators():
                config = fallback(config)
                expansion = expand_space(config)
            if config.cluster.gpu != "cpu":
                cluster.require(config.cluster.gpu, cluster.nodes())
            store = create(config, expansion, place)
            outer.enter_context(store.locked())
            outer.enter_context(broken_off(config, store, form=form))
            result = _measure(config, expansion, store, own_ray=own_ray, interrupts=interrupts, hold=hold)
            laps.measured(result.ready_at, result.spent)
        laps.end("end")
        # What Ray prints until it has ended is kept from standard output, so the tables come after it.
        return _conclude(config, store, result, interrupts, form, laps)


@contextmanager
def _connected(config: Config, outer: ExitStack, laps: Laps) -> Iterator[tuple[bool, Interrupts, Hold | None]]:
    """Be connected to Ray; yield whether it is one's own, the interrupts, handled until ``outer`` ends, and the hold.

    So an interrupt while the ranking is made costs no ranking.
    """
    laps.end("plan")
    log.info("starting Ray")
    with ExitStack() as inner:
        with starting():
            hold = inner.enter_context(held(config.cluster, meanwhile=MODULES))
            own_ray = hold is not None or inner.enter_context(cluster.connect(config.cluster, MODULES))
            if hold is not None:
                inner.enter_context(cluster.attach(hold.ray.address, hold.ray.token, hold.ray.node, MODULES))
            interrupts = outer.enter_context(interruptible())
        laps.end("ray")
        log.info("connected")
        yield own_ray, interrupts, hold
    if hold is not None and hold.kept:
        sys.stderr.write(f"{_kept(hold)}\n")


def _kept(hold: Hold) -> str:
    """Say what stays behind, what it holds and how it is ended."""
    devices = holding(hold.devices.values())
    return f"kept for {hold.keep_s:g} s: Ray and workers that hold {devices}; {RELEASE} ends them"


def _resume(arguments: argparse.Namespace, wish: "resumption.Wish", laps: Laps) -> int:
    """Go on with a run; nothing of it is measured again."""
    chosen = resumption.choose(wish)
    if printed_cfg(arguments, chosen.config):
        return 0
    with results(chosen.config.run) as place:
        return _finished(place, _go_on(chosen, wish, place.open(chosen.name), arguments.form, laps))


def _go_on(chosen: "resumption.Chosen", wish: "resumption.Wish", store: "RunStore", form: str, laps: Laps) -> int:
    config = chosen.config
    with ExitStack() as outer:
        outer.enter_context(store.locked())
        former = resumption.prepare(store, chosen, wish)
        if resumption.done(store, former, chosen):
            return _nothing_to_do(config, store, former, form)
        before = store.manifest()
        outer.enter_context(broken_off(config, store, before, form=form))
        if before:
            store.update_manifest(**resumption.driver())  # for others who would drive it too
        with _connected(config, outer, laps) as (own_ray, interrupts, hold):
            if config.cluster.gpu != "cpu":
                cluster.require(config.cluster.gpu, cluster.nodes())
            facts = _manifest(config, chosen.expansion)
            store.write_manifest({**facts, **before, **resumption.record(before, wish, chosen)})
            result = _measure(
                config, chosen.expansion, store, own_ray=own_ray, interrupts=interrupts, former=former, hold=hold
            )
            laps.measured(result.ready_at, result.spent)
        laps.end("end")
        return _conclude(config, store, result, interrupts, form, laps, former)


def _finished(place: Results, code: int) -> int:
    """Bring the run to where the user wants it; the exit code is 1 where it does not get there."""
    problems = place.finish()
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return code or int(bool(problems))


def _nothing_to_do(config: Config, store: "RunStore", former: "Former", form: str) -> int:
    """Show what there is; a run whose driver was stopped between its last Shard and its ranking is concluded."""
    from orchestrator.ranked_run import rank_run

    sys.stderr.write(f"{store.path}: nothing to do: every family has been measured or has failed\n")
    ranked = rank_run(store, config.rank.top, form)
    manifest = store.manifest()
    if manifest.get("status") != "finished":
        ranked.write()
        facts = {} if manifest.get("plan_hash") else _manifest(config, expand_space(config))
        store.write_manifest({**facts, **manifest, "ended_utc": _now(), "status": "finished", **_counts(former)})
    whole = ranked.printed()
    return int(bool(ranked.problems) or not whole)


def fallback(config: Config) -> Config:
    """The sweep for a cluster without accelerators: where it goes and what it prints are as was asked for.

    So is how Ray was reached and for how long it is kept, for that has been done.
    """
    from orchestrator.errors import ClusterError

    if config.cluster.fallback is None:
        raise ClusterError(cluster.complaint("the cluster has no GPU", "auto", cluster.nodes()))
    found = configuration.compose(config.cluster.fallback, config.overrides)
    kept = {name: getattr(config.cluster, name) for name in OF_RAY}
    sys.stderr.write(f"no accelerator in the cluster: conf={config.cluster.fallback}{_held(config)}\n")
    return replace(found, run=config.run, rank=config.rank, cluster=replace(found.cluster, **kept))


def _held(config: Config) -> str:
    """Say which values of a file hold in its fallback, where it has any beside those of the default."""
    if config == configuration.compose(DEFAULT_CONF, config.overrides):
        return ""
    *keys, last = ("run", "rank", *(f"cluster.{name}" for name in OF_RAY))
    return f"; of the sweep '{shorten(config.conf_name)}' only {', '.join(keys)} and {last} hold"


def create(config: Config, expansion: Expansion, place: Results) -> "RunStore":
    """Make the run; where the user gave no name and another run of this second has it already, by the next one."""
    name, manifest = run_name(config), _manifest(config, expansion)
    for number in itertools.count(2):
        try:
            return place.create(name, manifest)
        except RunExistsError:
            if config.run.name is not None:
                raise
            name = f"{run_name(config)}-{number}"
    raise AssertionError("numbers do not end")


def _measure(
    config: Config,
    expansion: Expansion,
    store: "RunStore",
    *,
    own_ray: bool,
    interrupts: Interrupts,
    former: "Former | None" = None,
    hold: Hold | None = None,
) -> "SweepResult":
    from rich.console import Console

    from orchestrator import progress
    from orchestrator.driver import sweep

    with _loading(), progress.show(expansion.bundles, Console(stderr=True)) as board:
        result = sweep(
            config,
            expansion.bundles,
            store,
            progress=board,
            code_version=__version__,
            plan_hash=plan_hash(config, expansion),
            own_ray=own_ray,
            former=former,
            interrupts=interrupts,
            kept=hold is not None,
        )
    if hold is not None:
        hold.kept = {device.uuid: device.gpu for device in result.left}
    log.info("swept")
    return result


@contextmanager
def _loading() -> Iterator[None]:
    later = threading.Timer(AFTERWARDS_S, importlib.import_module, (AFTERWARDS,))
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()


def _conclude(
    config: Config,
    store: "RunStore",
    result: "SweepResult",
    interrupts: Interrupts,
    form: str,
    laps: Laps,
    former: "Former | None" = None,
) -> int:
    """Rank, write and print; the exit code tells how the sweep ended."""
    from orchestrator.ranked_run import rank_run
    from orchestrator.suspects import STATUS as SUSPECT

    if result.interrupted and former is None and not store.shard_paths():
        store.discard()
        sys.stderr.write("interrupted before anything was measured: no run is kept\n")
        return result.exit_code
    ranked = rank_run(store, config.rank.top, form)
    ranked.write()
    laps.end("rank")
    sys.stderr.write(f"{told(laps.rounded())}\n")
    counts = _counts(former, result)
    store.update_manifest(
        ended_utc=_now(),
        status="interrupted" if result.interrupted else "unfinished" if result.unfinished else "finished",
        skipped_on_device=len(result.skipped),
        hosts=sorted({device.host for device in result.devices}),
        devices=[f"{device.gpu} {device.uuid}" for device in result.devices],
        seconds=laps.rounded(),
        **counts,
    )
    problems = [result.problem] if result.problem else []
    if result.unfinished:
        problems.append(f"not all: {result.unfinished} bundles were not measured")
    whole = ranked.printed(problems)
    failed = counts["failures"] or ranked.problems or "ok" not in ranked.statuses or SUSPECT in ranked.statuses
    return INTERRUPTED if interrupts.requested() else result.exit_code or int(bool(failed) or not whole)


def _counts(former: "Former | None", result: "SweepResult | None" = None) -> dict[str, int]:
    """What has become of the run's Bundles by all its drivers."""
    return {
        "bundles_ended": (former.bundles if former else 0) + (result.bundles if result else 0),
        "bundles_unfinished": result.unfinished if result else 0,
        "failures": (former.failures if former else 0) + (len(result.failures) if result else 0),
    }


@contextmanager
def broken_off(
    config: Config, store: "RunStore", before: Mapping[str, Any] | None = None, form: str = TABLES
) -> Iterator[None]:
    """Where a run breaks off, leave no empty one behind, and none that says it is running; show what was measured.

    before: the manifest of a run that is resumed; it comes back where nothing was added to the run. None: a new run.
    """
    shards = len(store.shard_paths())
    try:
        yield
    except BaseException as error:  # however it ends, by an interrupt or a fault, the run must say so; raised again
        if before is None and _empty(store):
            store.discard()
            raise
        with suppress(StoreError):  # the disk may be what broke
            if before and len(store.shard_paths()) == shards:
                store.write_manifest(before)
            elif store.manifest().get("status") == "running":
                status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
                store.update_manifest(ended_utc=_now(), status=status)
        if isinstance(error, StoreError):
            _show(config, store, form)
        raise


def _empty(store: "RunStore") -> bool:
    """Whether nothing was measured; not so where that cannot be told."""
    try:
        return not store.shard_paths()
    except StoreError:
        return False


def _show(config: Config, store: "RunStore", form: str) -> None:
    from orchestrator.ranked_run import rank_run

    rank_run(store, config.rank.top, form).printed()


def run_name(config: Config) -> str:
    """The run's name: the user's, or the sweep's with the time."""
    conf = re.sub(r"[^A-Za-z0-9._+-]+", "-", config.conf_name)[:CONF_LENGTH].strip("-.+") or "sweep"
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
        **resumption.driver(),
        "points": expansion.points,
        "families": len(expansion.families),
        "bundles": len(expansion.bundles),
        "gemms": expansion.gemms,
        "skips": [
            {
                "kind": kind,
                "count": count,
                "examples": [skip.reason for skip in itertools.islice(expansion.skips.of(kind), EXAMPLES)],
            }
            for kind, count in kinds.items()
        ],
    }
