"""The words of ``check``, made into a Case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.check_case import RUNNING, Case
from orchestrator.model_words import MODEL_KEYS, RUNNING_KEYS, models
from orchestrator.rules import Text
from orchestrator.words import GPU, Key, Words, one_of
from tasks.gemm import ELEMENT_BYTES

MODES = ("training", "inference")
NEEDED = ("h", "a", "layers", "v", "d_ff")
KEYS: Mapping[str, Key] = MappingProxyType(
    {
        **MODEL_KEYS,
        **RUNNING_KEYS,
        "gpu": GPU,
        "mode": one_of("mode", MODES, "{} [training]"),
        "dtype": one_of("dtype", ELEMENT_BYTES, "element type: {} [fp16]"),
        "results": Key(
            rule=Text(type_text="a run"), help="a run whose ranking says what a d_ff gains: path, name or latest"
        ),
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the words ask for. results: a run, None where there is none. notes: how the words were understood."""

    case: Case
    results: str | None
    notes: tuple[str, ...]


def parse(words: Sequence[str]) -> Asked:
    """Return what the words ask for, or raise ConfigError with everything that is wrong."""
    read = Words(words, KEYS)
    made = models(read, NEEDED)
    read.refuse()
    training = read.values.get("mode", MODES[0]) == MODES[0]
    case = Case(model=made[0], gpu=read.gpu(), training=training, **read.given(*RUNNING, "dtype"))
    return Asked(case=case, results=read.values.get("results"), notes=tuple(read.notes))
