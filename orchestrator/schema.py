"""The configuration: which keys there are, what they mean, their defaults and what they take."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from orchestrator.axis import Axis, DffChoice
from orchestrator.budget_rules import BudgetRule, OtherWeightsRule
from orchestrator.errors import InvalidValueError, shorten
from orchestrator.expression import Where
from orchestrator.model import MOST_LAYERS
from orchestrator.passes import PASSES
from orchestrator.rules import AxisRule, Choice, Choices, DffRule, Integer, Number, Rule, Switch, Text
from orchestrator.shape import VOCABULARY_MULTIPLE
from tasks.gemm import ELEMENT_BYTES
from tasks.settings import GOALS, L2_REGIMES, POWER_REGIMES, PROTOCOLS, Timing

AROUND = ("d_ff", "h", "a", "kv", "v", "experts", "batch")
"""Dimensions that can be chosen; every role has a batch."""

PLACEMENTS = ("split", "replicate")
"""Each Bundle once per GPU model; or on every device."""

RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
"""What may name a run: it is a directory's name on every system."""

LATEST = "latest"
"""What names the last run, wherever a run is asked for."""


def _role_names() -> Iterable[str]:
    from orchestrator.roles import ROLES

    return ROLES


def _gpu_names() -> Iterable[str]:
    from orchestrator.catalogue import names

    return ("all", "any", "auto", "cpu", *names())


def _catalogue_names() -> Iterable[str]:
    from orchestrator.catalogue import names

    return names()


def _conf_names() -> Iterable[str]:
    from orchestrator.config import conf_names

    return conf_names()


def _directory_name(name: str) -> None:
    if name == LATEST:
        raise InvalidValueError(f"'{LATEST}' means the last run: give this one another name")
    if not RUN_NAME.fullmatch(name) or len(name) > 100:
        raise InvalidValueError(
            f"'{shorten(name)}' cannot name a run: use at most 100 letters (a to z), digits, '.', '_', '+' and '-', "
            "beginning with a letter, a digit or '_'"
        )


def _constant(names: Iterable[str]) -> Callable[[], tuple[str, ...]]:
    kept = tuple(names)
    return lambda: kept


def _meta(help_text: str, rule: Rule) -> dict[str, Any]:
    return {"help": help_text, "rule": rule}


@dataclass(frozen=True, kw_only=True)
class Space:
    """What to measure: the product of these axes."""

    roles: list[str] = field(metadata=_meta("roles to measure", Choices(what="role", names=_role_names)))
    h: Axis = field(metadata=_meta("hidden sizes", AxisRule()))
    tp: Axis = field(metadata=_meta("tensor-parallel sizes; what tp does not divide is skipped", AxisRule()))
    batch: Axis = field(metadata=_meta("microbatch sizes", AxisRule()))
    seq: Axis = field(metadata=_meta("sequence lengths (roles without a sequence ignore it)", AxisRule()))
    dtype: list[str] = field(metadata=_meta("element types", Choices(what="dtype", names=_constant(ELEMENT_BYTES))))
    d_ff: DffChoice = field(metadata=_meta("feed-forward sizes to choose from", DffRule()))
    around: str = field(
        default="d_ff",
        metadata=_meta(
            "the dimension to choose: its values compete", Choice(what="dimension", names=_constant(AROUND))
        ),
    )
    passes: list[str] = field(
        default_factory=lambda: ["fwd"],
        metadata=_meta(
            "forward, backward (data and weight gradient), or both together",
            Choices(what="pass", names=_constant(PASSES)),
        ),
    )
    a: Axis = field(default=None, metadata=_meta("attention heads", AxisRule(optional=True)))
    kv: Axis = field(
        default=None, metadata=_meta("key/value heads; null: as many as attention heads", AxisRule(optional=True))
    )
    head_dim: Axis = field(default=None, metadata=_meta("size of a head; null: h / a", AxisRule(optional=True)))
    v: Axis = field(default=None, metadata=_meta("vocabulary sizes", AxisRule(optional=True)))
    v_multiple: int = field(
        default=VOCABULARY_MULTIPLE,
        metadata=_meta("the vocabulary is padded to a multiple of this times tp", Integer(high=1_000_000)),
    )
    experts: Axis = field(default=None, metadata=_meta("routed experts of a layer", AxisRule(optional=True)))
    topk: Axis = field(default=None, metadata=_meta("experts that each token takes", AxisRule(optional=True)))
    ep: Axis = field(default=1, metadata=_meta("expert-parallel sizes", AxisRule()))
    expert_d_ff: DffChoice = field(
        default=None, metadata=_meta("feed-forward sizes of one expert; null: d_ff", DffRule(optional=True))
    )
    params_budget: str | None = field(
        default=None,
        metadata=_meta(
            "parameters of the whole model: every h, d_ff and a that come to as many compete", BudgetRule(optional=True)
        ),
    )
    layers: Axis = field(
        default=None,
        metadata=_meta("layers of the model, for params_budget", AxisRule(optional=True, most=MOST_LAYERS)),
    )
    other_weights: Any = field(
        default=None,
        metadata=_meta(
            "weights beside the layers' matrices, for params_budget; null: a plain model's",
            OtherWeightsRule(optional=True),
        ),
    )
    model: str = field(
        default="",
        metadata=_meta(
            "name of the model that the space is of, as model=NAME sets it", Text(type_text="a name", empty=True)
        ),
    )
    where: str = field(
        default="",
        metadata=_meta(
            "keep only points for which this holds, e.g. d_ff % (64*tp) == 0",
            Text(type_text="a condition", empty=True, validate=Where),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where to measure."""

    gpu: str = field(
        default="auto",
        metadata=_meta(
            "GPU model to measure on; all, any (one model), cpu, or auto (any, else fallback)",
            Choice(what="GPU", names=_gpu_names),
        ),
    )
    address: str | None = field(
        default=None,
        metadata=_meta("address of the Ray cluster; null: RAY_ADDRESS, else a local Ray", Text(optional=True)),
    )
    start_timeout_s: float = field(
        default=60.0, metadata=_meta("seconds to wait for Ray and its workers", Number(above=0, high=86400))
    )
    placement: str = field(
        default="split",
        metadata=_meta(
            "measure each family once per GPU model, or on every device",
            Choice(what="placement", names=_constant(PLACEMENTS)),
        ),
    )
    canary_every: int = field(
        default=20,
        metadata=_meta("families between two canaries of a device; 0: no canaries", Integer(low=0)),
    )
    max_gpus: int | None = field(
        default=None, metadata=_meta("use at most this many GPUs; null: all", Integer(optional=True))
    )
    fallback: str | None = field(
        default=None,
        metadata=_meta(
            "sweep to run when gpu is auto and there is none", Choice(optional=True, what="sweep", names=_conf_names)
        ),
    )
    keep_s: float = field(
        default=0.0,
        metadata=_meta(
            "seconds for which Ray and its workers stay after the run for the next one; 0: they end with it",
            Number(low=0, high=86400),
        ),
    )
    reference_gpu: str | None = field(
        default=None,
        metadata=_meta(
            "GPU that plan estimates for when gpu is all, any or auto",
            Choice(optional=True, what="GPU", names=_catalogue_names),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where the results go."""

    dir: str = field(
        default="results",
        metadata=_meta(
            "directory that holds the runs, or its URI (s3://…)", Text(type_text="a directory or URI", place=True)
        ),
    )
    name: str | None = field(
        default=None,
        metadata=_meta(
            "name of the run; null: the sweep's name and the time", Text(optional=True, validate=_directory_name)
        ),
    )
    max_failure_share: float = field(
        default=0.3,
        metadata=_meta("share of failed GEMMs above which, after 10 families, it stops", Number(low=0, high=1)),
    )
    least_deadline_s: float = field(
        default=60.0,
        metadata=_meta("least seconds after which a family counts as hanging", Number(above=0, high=86400)),
    )
    spool: str | None = field(
        default=None,
        metadata=_meta(
            "where a run is kept on its way to a URI; null: under ~/.local/state",
            Text(type_text="a directory", optional=True, place=True),
        ),
    )
    upload_timeout_s: float = field(
        default=120.0,
        metadata=_meta("seconds to wait at the end for a store that takes no file", Number(low=0, high=86400)),
    )
    kernels: bool = field(
        default=False,
        metadata=_meta("record the names of the kernels that each GEMM runs, after its family's rounds", Switch()),
    )


@dataclass(frozen=True, kw_only=True)
class Rank:
    """What to print."""

    top: int = field(default=5, metadata=_meta("candidates to print per family", Integer()))


def _timing_metadata() -> dict[str, dict[str, Any]]:
    seconds = Number(low=0, high=86400)
    return {
        "protocol": _meta("timing protocol", Choice(what="protocol", names=_constant(PROTOCOLS))),
        "l2": _meta("what a visit finds in the L2 cache", Choice(what="L2 regime", names=_constant(L2_REGIMES))),
        "power": _meta("power state to measure in", Choice(what="power regime", names=_constant(POWER_REGIMES))),
        "min_rounds": _meta(
            "rounds before a family may stop; null: 4, or 10 by goal=full", Integer(high=100_000, optional=True)
        ),
        "max_rounds": _meta("rounds after which a family stops", Integer(high=100_000)),
        "max_seconds": _meta(
            "measuring seconds beyond the least rounds after which a family stops; null: 1, 1.5 by goal=full, 2.5 "
            "after a search",
            Number(above=0, high=86400, optional=True),
        ),
        "tie_pct": _meta("difference in percent below which two candidates tie", Number(low=0, below=100)),
        "race_pct": _meta(
            "percent behind the best at which a candidate leaves the rounds, by goal=full", Number(low=0, high=1e6)
        ),
        "confidence": _meta("confidence of the intervals", Number(above=0, below=1)),
        "lead_calls": _meta(
            "untimed calls at the start of a visit; null: 1, or 0 before a single long call",
            Integer(low=0, high=1000, optional=True),
        ),
        "visit_us": _meta(
            "microseconds that the timed calls of a visit fill; more, up to four times, for calls below 20",
            Number(above=0, high=1e7),
        ),
        "soak_min_s": _meta("least seconds of load before the first family", seconds),
        "soak_max_s": _meta("most seconds of load before the first family", seconds),
        "warmup_s": _meta("seconds of load before the first family, by protocol=sequential", seconds),
        "seed": _meta("seed of the random orders", Integer(low=0)),
        "redo_throttled": _meta("times a throttled family is measured again", Integer(low=0, high=10)),
        "goal": _meta(
            "what the rounds are for: the best, or the whole order", Choice(what="goal", names=_constant(GOALS))
        ),
    }


@dataclass(frozen=True, kw_only=True)
class Config:
    """A resolved configuration, with the sweep's name and the overrides that made it."""

    space: Space
    timing: Timing = field(default_factory=Timing)
    cluster: Cluster = field(default_factory=Cluster)
    run: Run = field(default_factory=Run)
    rank: Rank = field(default_factory=Rank)
    conf_name: str = ""
    overrides: tuple[str, ...] = ()


SECTIONS: Mapping[str, type] = MappingProxyType(
    {"space": Space, "timing": Timing, "cluster": Cluster, "run": Run, "rank": Rank}
)


WRITTEN: Mapping[str, str] = MappingProxyType({"passes": "pass"})
"""Fields whose key has another name: ``pass`` can name nothing in Python."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One key of the configuration: its dotted name, its rule, one line of help and its default (None for none)."""

    name: str
    rule: Rule
    help: str
    default: object


def schema_keys() -> dict[str, Key]:
    """Return every key by its dotted name, in the schema's order."""
    return {key.name: key for section, record in SECTIONS.items() for key in _section_keys(section, record)}


def _section_keys(section: str, record: type) -> Iterator[Key]:
    timing = _timing_metadata() if record is Timing else {}
    for part in fields(record):
        meta = timing.get(part.name, part.metadata)
        default = None if part.default is MISSING else part.default
        if part.default_factory is not MISSING:
            default = part.default_factory()
        name = WRITTEN.get(part.name, part.name)
        yield Key(name=f"{section}.{name}", rule=meta["rule"], help=meta["help"], default=default)
