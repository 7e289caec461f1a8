"""``resume=RUN``: which run, by which configuration, and what is left to do in it."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator import config as configuration
from orchestrator.address import is_uri
from orchestrator.errors import ConfigError, InvalidValueError, Problem, ResumeError, unknown
from orchestrator.schema import Config
from orchestrator.space import Expansion, expand_space, plan_hash
from orchestrator.words import RESUME_WORDS
from tasks.records import NO_FAILURE, STATUSES
from tasks.settings import PROTOCOL_VERSION

if TYPE_CHECKING:
    from orchestrator.resume import Former
    from orchestrator.store import RunStore

COMPARED = ("space", "timing")
"""Sections of the configuration that must be the run's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What the user asks for. words: the other arguments; empty: the run's own configuration."""

    run: str
    anyway: bool
    retry: frozenset[str]
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The run that is meant, the configuration to go on by, and in what that differs from the run's own."""

    name: str
    config: Config
    expansion: Expansion
    differences: tuple[str, ...]


def split(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Part the arguments of RESUME_WORDS from the others."""
    ours = [word for word in words if word.partition("=")[0] in RESUME_WORDS and "=" in word]
    return dict(word.split("=", 1) for word in ours), [word for word in words if word not in ours]


def wish(words: Sequence[str]) -> Wish | None:
    """Read the arguments; None where no run is to be resumed.

    Raises:
        ConfigError: one of them is wrong, or stands without ``resume=``.
    """
    ours, others = split(words)
    if not ours:
        return None
    problems: list[Problem] = []
    if not ours.get("resume"):
        name = next(iter(ours))
        problems.append(
            Problem(origin=f"argument {name}={ours[name]}", message="which run? resume=latest or resume=RUN")
        )
    if ours.get("resume_anyway", "true") not in ("true", "false"):
        problems.append(
            Problem(origin=f"argument resume_anyway={ours['resume_anyway']}", message="expected true or false")
        )
    retry: frozenset[str] = frozenset()
    if "retry" in ours:
        try:
            retry = retried(ours["retry"])
        except InvalidValueError as error:
            problems.append(Problem(origin=f"argument retry={ours['retry']}", message=str(error)))
    if problems:
        raise ConfigError(problems)
    return Wish(run=ours["resume"], anyway=ours.get("resume_anyway") == "true", retry=retry, words=tuple(others))


def retried(text: str) -> frozenset[str]:
    """Return the statuses that ``retry=TEXT`` means, a list of names; ``failed`` is all failures.

    Raises:
        InvalidValueError: a status that there is not, or that is no failure.
    """
    meant = {status: {status} for status in STATUSES if status != "ok"}
    every = {"failed": set(meant).difference(NO_FAILURE), **meant}
    names = [name.strip() for name in text.split(",")]
    if wrong := [unknown("status", name, list(every)) for name in dict.fromkeys(names) if name not in every]:
        raise InvalidValueError("; ".join(wrong))
    return frozenset().union(*(every[name] for name in names))


def choose(wish: Wish) -> Chosen:
    """Open the run and compose its configuration: its own, or that of the other arguments.

    Raises:
        StoreError: there is no such run.
        ResumeError: it does not say what was asked for, and neither do the other arguments.
        ConfigError: the other arguments are wrong.
    """
    from orchestrator.runs import find_run
    from orchestrator.spool import Origin

    names = [word.removeprefix("conf=") for word in wish.words if word.startswith("conf=")]
    overrides = [word for word in wish.words if not word.startswith("conf=")]
    spool = _given(overrides, "run.spool")
    store = find_run(wish.run, _given(overrides, "run.dir") or "results", None if spool in ("null", "~") else spool)
    manifest = store.manifest()
    recorded: dict[str, Any] = manifest.get("config", {})
    if not names and not recorded:
        raise ResumeError(
            f"{store.path} has no manifest that says what was asked for: add conf=NAME and the values that it was "
            "begun with"
        )
    if names:
        config = configuration.compose(names[-1], overrides)
    else:
        config = configuration.recompose(manifest.get("conf", ""), recorded, overrides)
    expansion = expand_space(config)
    place = str(store.path.resolve().parent)  # where the name is that ``store`` goes by
    origin = Origin.of(store.path)
    if origin is not None:  # it belongs into a store, and the local one is a spool
        place = config.run.dir if is_uri(config.run.dir) else str(origin.address.parent)
    config = replace(config, run=replace(config.run, dir=place, name=store.name))
    return Chosen(
        name=store.name, config=config, expansion=expansion, differences=_differences(manifest, config, expansion)
    )


def _given(overrides: Sequence[str], key: str) -> str | None:
    """The text that the arguments give a key by which the run is found, before its configuration is known."""
    texts = [text.strip() for name, _, text in (word.partition("=") for word in overrides) if name.strip() == key]
    return texts[-1] if texts else None


def _differences(manifest: dict[str, Any], config: Config, expansion: Expansion) -> tuple[str, ...]:
    from orchestrator.resume import differences

    if manifest.get("plan_hash") in (None, plan_hash(config, expansion)):
        return ()
    then, now = manifest.get("config", {}), configuration.to_dict(config)
    changed = differences({name: then.get(name, {}) for name in COMPARED}, {name: now[name] for name in COMPARED})
    return tuple(changed) or ("the expansion of the same configuration: another version of this program wrote the run",)


def prepare(store: "RunStore", chosen: Chosen, wish: Wish) -> "Former":
    """Sweep what a killed writer left, and read what was measured. Call it as the run's one driver.

    Raises:
        ResumeError: the plan or the protocol differ, and the user did not say that it does not matter.
    """
    from orchestrator.atomic import sweep_temporaries
    from orchestrator.resume import former

    config = chosen.config
    _refuse(store, chosen.differences, wish)
    sweep_temporaries(store.path)
    planned = {
        bundle.bundle_id: frozenset(gemm.gemm_id for gemm in bundle.gemms) for bundle in chosen.expansion.bundles
    }
    found = former(store, config.cluster.placement, config.timing.least_rounds, wish.retry, planned)
    if wish.anyway:
        return replace(found, environments={})
    _refuse(store, _measured_otherwise(store, found, chosen), wish)
    return found


def _refuse(store: "RunStore", differences: Sequence[str], wish: Wish) -> None:
    from orchestrator.resume import ANYWAY

    if differences and not wish.anyway:
        lines = "\n  ".join(differences)
        raise ResumeError(f"{store.path} was begun with another plan\n  {lines}\n{ANYWAY}")


def _measured_otherwise(store: "RunStore", found: "Former", chosen: Chosen) -> list[str]:
    """In what the Shards themselves differ from what would be added to them."""
    plan, protocol = plan_hash(chosen.config, chosen.expansion), chosen.config.timing.protocol
    lines = [
        f"timing.protocol: {name}, version {version}, in the run; {protocol}, version {PROTOCOL_VERSION[protocol]}, now"
        for name, version in sorted(found.protocols - {(protocol, PROTOCOL_VERSION[protocol])})
    ]
    # A manifest that names the plan has been compared with it; the run may have gone on with another one, knowingly.
    if "plan_hash" not in store.manifest() and found.plans and plan not in found.plans:
        lines.append(f"the plan: {', '.join(sorted(found.plans))} in the shards, {plan} by these arguments")
    return lines


def record(manifest: Mapping[str, Any], wish: Wish, chosen: Chosen) -> dict[str, Any]:
    """What the manifest says of a run that goes on."""
    entry = {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "arguments": list(wish.words),
        "retry": sorted(wish.retry),
        "anyway": wish.anyway,
        "differences": list(chosen.differences),
    }
    resumed = [*manifest.get("resumed", []), entry]
    return {"status": "running", **driver(), "resumed": resumed}


def driver() -> dict[str, Any]:
    """Who drives a run now."""
    return {"host": socket.gethostname(), "pid": os.getpid()}


def done(store: "RunStore", found: "Former", chosen: Chosen) -> bool:
    """Whether every lane that the run has is complete; of a fleet, only a finished run is known to have all lanes."""
    wanted = {bundle.bundle_id for bundle in chosen.expansion.bundles}
    lanes = found.earlier.ended.values()
    complete = bool(lanes) and all(wanted <= ended for ended in lanes)
    fleet = chosen.config.cluster.gpu == "all" or chosen.config.cluster.placement == "replicate"
    return complete and (not fleet or store.manifest().get("status") == "finished")
