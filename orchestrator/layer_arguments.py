"""The words of ``layer``, made into one LayerCase per h."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from orchestrator.layer import DTYPES, LayerCase, problems
from orchestrator.model_words import HEAD_DIM, KINDS, MODEL_KEYS, RUNNING_KEYS, SIZES, SWIGLU_MULTIPLE, models
from orchestrator.rules import Integer, Switch
from orchestrator.words import Key, Words, one_of

MOST_VALUES = 32
RUNNING = ("tp", "ep", "b", "s")
KEYS: Mapping[str, Key] = MappingProxyType(
    {
        **MODEL_KEYS,
        "h": Key(rule=Integer(listed=True), help="hidden size; several as 2560,4096 give a table each"),
        "a": replace(MODEL_KEYS["a"], help="attention heads [h / head_dim]"),
        "head_dim": replace(MODEL_KEYS["head_dim"], help=f"size of a head [h / a; {HEAD_DIM} without a]"),
        "d_ff": replace(
            MODEL_KEYS["d_ff"],
            help=f"hidden size of the MLP [4h with gelu; 8h/3 rounded up to a multiple of {SWIGLU_MULTIPLE}]",
        ),
        **RUNNING_KEYS,
        "ep": Key(rule=Integer(), help="expert-parallel size [1]"),
        "dtype": one_of("dtype", DTYPES, "element type: {} [bf16]"),
        "training": Key(rule=Switch(), help="true|false: with dropout [false]"),
        "rounds": Key(rule=Integer(low=10, high=10_000), help="most rounds; 10 are the least [30]"),
        "seed": Key(rule=Integer(low=0), help="of the order in a round [0]"),
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the words ask for: a case per h, in the order given."""

    cases: tuple[LayerCase, ...]
    rounds: int = 30
    seed: int = 0


def parse(words: Sequence[str]) -> Asked:
    """Return what the words ask for, or raise ConfigError with everything that is wrong."""
    read = Words(words, KEYS)
    if len(sizes := read.values.get("h", ())) > MOST_VALUES:
        read.report(read.origin("h"), f"h: {len(sizes)} values; at most {MOST_VALUES} are timed at once")
    made = models(read)
    read.refuse()
    cases = tuple(LayerCase(model=model, **read.given(*RUNNING, "dtype", "training")) for model in made)
    for case in cases:
        for message in problems(case):
            read.report(read.origin(*SIZES, "model", *RUNNING, *KINDS), message)
    read.refuse()
    return Asked(cases=cases, **read.given("rounds", "seed"))
