"""Reads a model file key by key: every value is checked, everything wrong is collected with the key that it is in."""

from collections.abc import Mapping, Sequence

from orchestrator.axis import MAX_DIMENSION, whole
from orchestrator.errors import InvalidValueError, Problem, describe
from orchestrator.model import MOST_LAYERS

WANTED = {
    "h": "the hidden size, such as 4096",
    "layers": "the number of layers, such as 32",
    "a": "the number of attention heads, such as 32",
    "kv": "the number of key/value heads, such as 8",
    "head_dim": "the size of one head, such as 128",
    "d_ff": "the hidden size of the MLP, such as 14336",
    "v": "the size of the vocabulary, such as 128256",
    "positions": "the number of learned positions, such as 2048",
    "experts": "the number of routed experts, such as 8",
    "topk": "the number of experts that a token takes, such as 2",
    "expert_d_ff": "the hidden size of one expert, such as 1408",
    "shared_d_ff": "the total hidden size of the shared experts, or 0",
    "dense_layers": "how many layers have a dense MLP, or 0",
}
"""What each dimension of a Model is, for the message about a key that lacks it."""


class Keys:
    """One mapping of a file. A value that is missing or wrong is reported and read as None.

    defaults: values of keys that a file may leave out; ``assumed`` lists those that were needed. written: the key that
    each dimension was read from.
    """

    def __init__(self, values: Mapping[str, object], origin: str, defaults: Mapping[str, int] | None = None) -> None:
        self.values = values
        self.origin = origin
        self.defaults = dict(defaults or {})
        self.problems: list[Problem] = []
        self.written: dict[str, str] = {}
        self.assumed: dict[str, int] = {}

    def report(self, key: str, message: str) -> None:
        """Record what is wrong with a key."""
        self.problems.append(Problem(origin=self.origin, message=f"{key}: {message}"))

    def present(self, names: Sequence[str]) -> str | None:
        """Return the first of ``names`` that has a value."""
        return next((name for name in names if self.values.get(name) is not None), None)

    def whole(self, noun: str, names: Sequence[str], *, low: int = 1, default: int | None = None) -> int | None:
        """Return a dimension from the first of ``names`` that has a value; ``default`` where none has."""
        high = MOST_LAYERS if noun == "layers" else MAX_DIMENSION
        key = self.present(names)
        if key is None:
            return self._absent(noun, names, default)
        self.written[noun] = key
        try:
            return whole("", self.values[key], low=low, high=high)
        except InvalidValueError as error:
            self.report(key, f"{error}; give {WANTED.get(noun, 'a whole number')}")
            return None

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean; ``default`` where the key has no value."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.report(key, f"{describe(value)} is no boolean; give true or false")
        return default

    def text(self, key: str, default: str = "") -> str:
        """Return a text; ``default`` where the key has no value."""
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return default if value is None else value
        self.report(key, f"{describe(value)} is no text")
        return default

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty where the key has no value."""
        value = self.values.get(key)
        items = [] if value is None else value
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return tuple(items)
        self.report(key, f"{describe(value)} is no list of texts")
        return ()

    def wholes(self, key: str) -> tuple[int, ...] | None:
        """Return a list of whole numbers, None where the key has no value."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            return tuple(value)
        self.report(key, f"{describe(value)} is no list of whole numbers, such as [0, 1]")
        return None

    def mapping(self, key: str) -> Mapping[str, object] | None:
        """Return a nested mapping, None where the key has no value."""
        value = self.values.get(key)
        if value is None or isinstance(value, dict):
            return value
        self.report(key, f"{describe(value)} is no mapping of keys to values")
        return None

    def _absent(self, noun: str, names: Sequence[str], default: int | None) -> int | None:
        assumed = next((name for name in names if name in self.defaults), None)
        self.written[noun] = assumed or names[0]
        if assumed is not None:
            self.assumed[assumed] = self.defaults[assumed]
            return self.defaults[assumed]
        if default is None:
            null = next((name for name in names if name in self.values), None)
            others = f" (or {', '.join(names[1:])})" if names[1:] and null is None else ""
            state = "has no value" if null else "is missing"
            self.report(f"{null or names[0]}{others}", f"{state}; give {WANTED.get(noun, 'a whole number')}")
        return default
