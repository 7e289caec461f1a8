"""The words of ``capacity``, made into a Layout, the results to look it up in, and what is to be reached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.capacity_amount import Amount, AmountPerGpu, PerGpu
from orchestrator.capacity_layout import MODES, Layout
from orchestrator.capacity_target import Target
from orchestrator.errors import InvalidValueError
from orchestrator.model_words import MODEL_KEYS, RUNNING_KEYS, models
from orchestrator.rules import Integer, Text
from orchestrator.words import Key, Words, one_of
from tasks.gemm import ELEMENT_BYTES

NEEDED = ("h", "a", "layers", "v", "d_ff")
RUNNING = ("tp", "pp", "dp", "b", "s", "mode", "dtype")
KEYS: Mapping[str, Key] = MappingProxyType(
    {
        **MODEL_KEYS,
        "tp": RUNNING_KEYS["tp"],
        "pp": Key(rule=Integer(), help="pipeline stages [1]"),
        "dp": Key(rule=Integer(), help="replicas [1]"),
        "b": RUNNING_KEYS["b"],
        "s": RUNNING_KEYS["s"],
        "mode": one_of("mode", MODES, "{} [prefill]"),
        "dtype": one_of("dtype", ELEMENT_BYTES, "element type: {} [bf16]"),
        "results": Key(
            rule=Text(type_text="runs or tables"),
            help="runs (path, URI, name, latest) and published tables (PATH, GPU=PATH), as A,B,…",
        ),
        "intra_node_gb_s": Key(
            rule=AmountPerGpu(),
            help="bandwidth of a GPU to the others of its node, one direction, in GB/s; or h100:X,h200:Y; else the "
            "catalogue's",
        ),
        "tokens_per_s": Key(rule=Amount(), help="target: how many GPUs give these tokens a second"),
        "tokens": Key(rule=Amount(), help="target, with days=: how many GPUs take these tokens in that time"),
        "days": Key(rule=Amount(), help="target, with tokens="),
        "price_per_gpu_hour": Key(rule=AmountPerGpu(), help="price of a GPU and hour; or h100:X,h200:Y"),
    }
)
NOTHING = PerGpu(by_name={})


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the words ask for. results: words for runs and tables. links: GB/s; prices: of a GPU and hour."""

    layout: Layout
    results: tuple[str, ...]
    target: Target | None = None
    links: PerGpu = NOTHING
    prices: PerGpu = NOTHING


def parse(words: Sequence[str]) -> Asked:
    """Return what the words ask for, or raise ConfigError with everything that is wrong."""
    read = Words(words, KEYS)
    made = models(read, NEEDED)
    results = tuple(part.strip() for part in str(read.values.get("results", "")).split(",") if part.strip())
    if not results and ("results" in read.values or "results" not in read.origins):
        read.report(read.origin("results"), "give results=, runs or published tables, such as results=latest")
    target = _target(read)
    read.refuse()
    layout = Layout(model=made[0], **read.given(*RUNNING))
    try:
        layout.check()
    except InvalidValueError as error:
        read.report(read.origin("model", "h", "a", "kv", "d_ff", "layers", "tp", "pp"), str(error))
    read.refuse()
    return Asked(
        layout=layout,
        results=results,
        target=target,
        links=read.values.get("intra_node_gb_s", NOTHING),
        prices=read.values.get("price_per_gpu_hour", NOTHING),
    )


def _target(read: Words) -> Target | None:
    asked = [key for key in ("tokens_per_s", "tokens", "days") if key in read.origins]
    if "tokens_per_s" in asked and len(asked) > 1:
        read.report(read.origin(*asked), "give either tokens_per_s=, or tokens= and days=")
    elif len(asked) == 1 and asked != ["tokens_per_s"]:
        other = "days" if asked == ["tokens"] else "tokens"
        read.report(read.origin(*asked), f"needs {other}= beside it")
    given = read.given(*asked)
    return Target(**given) if asked and len(given) == len(asked) else None
