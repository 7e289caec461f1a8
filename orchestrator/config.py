"""Composes a configuration: base, the sweep's file, arguments. The only module that touches OmegaConf."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.bounded import read_text
from orchestrator.cross_checks import cross_checks
from orchestrator.errors import ConfigError, InvalidValueError, Problem, describe, nearest, shorten, unknown
from orchestrator.interrupts import held_back
from orchestrator.rules import Rule
from orchestrator.schema import AROUND, SECTIONS, WRITTEN, Config, schema_keys
from orchestrator.yaml_text import TAG_ERRORS, TAG_MESSAGE, checked_node

BASE = "base"
AROUND_KEY = "space.around"
BUDGET_KEY = "space.params_budget"
MODEL_KEY = "model"
MODEL_NAME_KEY = "space.model"

_PART = Rule(type_text="a number")  # a part of an axis, such as space.h.step; the axis as a whole is checked later


def compose(conf: str, overrides: Sequence[str] = ()) -> Config:
    """Return the configuration of one sweep, or raise ConfigError with everything that is wrong.

    conf: the name of a ready-made sweep, or the path of a YAML file. overrides: ``key=value`` arguments; ``model=``
    names a model, or its file, whose dimensions stand between the two, wherever it stands.
    """
    draft = _Draft()
    draft.read_file(_ready_made(BASE), f"conf/{BASE}.yaml")
    draft.read_conf(conf)
    return _finished(draft, Path(conf).stem, overrides)


def recompose(conf_name: str, sections: Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """Return the configuration that ``to_dict`` gave as ``sections``, with other ``overrides``; raise ConfigError."""
    draft = _Draft()
    draft.read_tree(_with_goal(sections), "manifest.json")
    draft.require("manifest.json")
    return _finished(draft, conf_name, overrides)


def _with_goal(sections: Mapping[str, Any]) -> Mapping[str, Any]:
    """A run from before there was a choice of ``timing.goal`` measured the whole order."""
    timing = sections.get("timing")
    return {**sections, "timing": {"goal": "full", **timing}} if isinstance(timing, Mapping) else sections


def _finished(draft: "_Draft", conf_name: str, overrides: Sequence[str]) -> Config:
    models = _models(overrides)
    if models:
        draft.read_model(_value(models[-1]), overrides)
    for token in overrides:
        if token not in models:
            draft.read_argument(token)
    values = draft.checked()
    if draft.problems:
        raise ConfigError(draft.problems)
    return dataclasses.replace(_built(values), conf_name=conf_name, overrides=tuple(overrides))


@held_back()
def _built(values: Mapping[str, object]) -> Config:
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), _as_fields(_nested(values))))
    return cast(Config, config)


def _models(overrides: Sequence[str]) -> list[str]:
    return [word for word in overrides if word.partition("=")[0].strip() == MODEL_KEY and "=" in word]


def _value(word: str) -> str:
    return word.partition("=")[2].strip()


def model_notes(config: Config) -> tuple[str, ...]:
    """What the model of this configuration, if it has one, says that its dimensions leave out."""
    from orchestrator.models import load_model

    models = _models(config.overrides)
    return load_model(_value(models[-1])).notes if models else ()


def conf_names() -> list[str]:
    """Return the names of the ready-made sweeps."""
    entries = (entry.name for entry in files("conf").iterdir())
    return sorted(name[:-5] for name in entries if name.endswith(".yaml") and name != f"{BASE}.yaml")


def keys() -> list[tuple[str, str, str, str]]:
    """Return (dotted key, what it takes, default, help) for every key, in the schema's order."""
    draft = _Draft()
    draft.read_file(_ready_made(BASE), f"conf/{BASE}.yaml")
    return [
        (key.name, key.rule.takes(), _flow(draft.values.get(key.name, key.default)), key.help)
        for key in schema_keys().values()
    ]


def to_dict(config: Config) -> dict[str, Any]:
    """Return the resolved sections as plain values; ``conf_name`` and ``overrides`` are not among them."""
    found = {section: dataclasses.asdict(getattr(config, section)) for section in SECTIONS}
    return {
        section: {WRITTEN.get(name, name): value for name, value in values.items()} for section, values in found.items()
    }


@held_back()
def to_yaml(config: Config) -> str:
    """Return the resolved configuration as YAML that ``conf=FILE`` reads back."""
    return OmegaConf.to_yaml(OmegaConf.create(to_dict(config)))


class _Draft:
    """Values collected layer by layer, each with the origin that set it last, and the problems met on the way."""

    def __init__(self) -> None:
        self.keys = schema_keys()
        self.values: dict[str, object] = {}
        self.origins: dict[str, str] = {}
        self.problems: list[Problem] = []

    def read_conf(self, conf: str) -> None:
        """Add a ready-made sweep or a user's file."""
        if "/" in conf or "\\" in conf or conf.endswith((".yaml", ".yml")):
            self.read_file(Path(os.path.expanduser(conf)), conf)
        elif conf in conf_names():
            self.read_file(_ready_made(conf), f"conf/{conf}.yaml")
        else:
            hint = " (a file of your own: give its path, ending in .yaml)"
            self._report(f"argument 'conf={shorten(conf)}'", unknown("sweep", conf, conf_names()) + hint)

    def read_model(self, text: str, overrides: Sequence[str]) -> None:
        """Add a model's dimensions, with the neighbours of what ``overrides``, or else a file, choose."""
        from orchestrator.model_shapes import shapes_of
        from orchestrator.model_space import space_of
        from orchestrator.models import load_model

        origin = f"argument 'model={shorten(text)}'"
        ahead = _Draft()  # which finds no fault: each argument is read again after the model
        for word in overrides:
            if word.partition("=")[0].strip() in (AROUND_KEY.partition(".")[0], AROUND_KEY, BUDGET_KEY):
                ahead.read_argument(word)
        wanted = {AROUND_KEY: self.keys[AROUND_KEY].default, **self.values, **ahead.values}
        around, budget = str(wanted[AROUND_KEY]), self._takes(BUDGET_KEY, wanted.get(BUDGET_KEY))
        try:
            model = load_model(text, origin)
        except ConfigError as error:
            self.problems += error.problems
            return
        known = around if around in AROUND else str(self.keys[AROUND_KEY].default)  # a wrong one is told of later
        self._add_tree(origin, {"space": shapes_of(model) if budget else space_of(model, known)})

    def read_tree(self, sections: Mapping[str, Any], origin: str) -> None:
        """Add plain nested values."""
        self._add_tree(origin, dict(sections))

    def require(self, origin: str) -> None:
        """Record what has no value, and no default either."""
        for name, key in self.keys.items():
            if name not in self.values and key.default is None and not key.rule.optional:
                self._report(origin, f"{name} is missing")

    def read_file(self, path: Path, origin: str) -> None:
        """Add a YAML file."""
        try:
            self._add_tree(origin, _parse_file(read_text(path)))
        except FileNotFoundError:
            self._report(origin, f"there is no such file; the ready-made sweeps are: {', '.join(conf_names())}")
        except OSError as error:
            self._report(origin, f"cannot be read: {error.strerror}")
        except UnicodeError:
            self._report(origin, "cannot be read: it is not a UTF-8 text")
        except ValueError:
            self._report(origin, "cannot be read: no file can have this name")
        except InvalidValueError as error:
            self._report(origin, str(error))

    def read_argument(self, token: str) -> None:
        """Add one ``key=value`` argument."""
        origin = f"argument '{shorten(token)}'"
        name, equals, text = (part.strip() for part in token.partition("="))
        if not equals:
            hint = f"; did you mean conf={name}?" if name in conf_names() else ""
            self._report(origin, f"is not of the form key=value{hint}")
        elif not name:
            self._report(origin, "has no key before '='; write key=value, such as space.h=4096")
        elif name == MODEL_NAME_KEY and _unquoted(text):
            self._report(origin, f"{name} is but the name that model= leaves; write {MODEL_KEY}={_unquoted(text)}")
        else:
            self._add_argument(origin, name, text)

    @held_back()
    def checked(self) -> dict[str, Any]:
        """Return the values that their rules accept, and record a problem for each of the others."""
        defaults = {name: key.default for name, key in self.keys.items()}
        tree = OmegaConf.create(_nested({**defaults, **self.values}))  # so that one key can interpolate another
        good: dict[str, Any] = {}
        for name in self.values:
            try:
                good[name] = self.keys[name].rule.check(_resolved(tree, name))
            except InvalidValueError as error:
                self._report(self.origins[name], f"{name}: {error}")
        for names, message in cross_checks(good):
            self._report(self._origin_of(names), message)
        return good

    def _add_argument(self, origin: str, name: str, text: str) -> None:
        try:
            if name in SECTIONS:
                self._add_tree(origin, {name: _parse_value(text)})
                return
            rule = self._rule(name)
            self._assign(origin, name, None if rule is None else _parse_argument(rule, text))
        except InvalidValueError as error:
            self._report(origin, f"{name}: {error}")

    def _add_tree(self, origin: str, tree: Mapping[Any, Any], prefix: str = "") -> None:
        for part, value in tree.items():
            name = f"{prefix}{part}"
            if name not in SECTIONS:
                self._assign(origin, name, value)
            elif isinstance(value, Mapping):
                self._add_tree(origin, value, f"{name}.")
            elif value is not None:  # a section whose lines are all comments is empty
                children = ", ".join(key for key in self.keys if key.startswith(f"{name}."))
                self._report(origin, f"{name}: {describe(value)} is no mapping; the section has {children}")

    def _assign(self, origin: str, name: str, value: object) -> None:
        if name in self.keys:
            self.values[name] = value
        elif self._rule(name) is not None:
            self._assign_part(origin, name, value)
            name = name.rpartition(".")[0]
        else:
            self._report(origin, self._unknown_key(name))
            return
        self.origins[name] = origin

    def _assign_part(self, origin: str, name: str, value: object) -> None:
        parent, _, part = name.rpartition(".")
        current = self.values.get(parent)
        if isinstance(current, Mapping):
            self.values[parent] = {**current, part: value}
        else:
            message = f"{name}: {parent} is {_flow(current)}, which has no {part}; give {parent} as a whole"
            self._report(origin, message)

    def _rule(self, name: str) -> Rule | None:
        """Return the rule of a key, or of the key that ``name`` is a part of."""
        if name in self.keys:
            return self.keys[name].rule
        parent, _, part = name.rpartition(".")
        key = self.keys.get(parent)
        return _PART if key is not None and part in key.rule.parts else None

    def _unknown_key(self, name: str) -> str:
        if name == "conf":
            return "conf is given once and not in a file"
        if name == MODEL_KEY:
            return "model is given as an argument and not in a file: model=NAME, or the dimensions themselves"
        last = name.rpartition(".")[2]
        same = [key for key in self.keys if key.rpartition(".")[2] == last]
        by_last = {key.rpartition(".")[2]: key for key in self.keys}
        close = same or nearest(name, self.keys) or [by_last[match] for match in nearest(last, by_last)]
        hint = f"did you mean {' or '.join(close)}?" if close else f"the sections are {', '.join(SECTIONS)}"
        return f"unknown key '{shorten(name)}'; {hint}"

    def _takes(self, name: str, value: object) -> bool:
        """Whether a key has a value, and one that it takes."""
        try:
            return self.keys[name].rule.check(value) is not None
        except InvalidValueError:
            return False

    def _origin_of(self, names: Sequence[str]) -> str:
        found = dict.fromkeys(self.origins[name] for name in names if name in self.origins)
        own = [origin for origin in found if origin != f"conf/{BASE}.yaml"]
        return " and ".join(own or found)

    def _report(self, origin: str, message: str) -> None:
        self.problems.append(Problem(origin=origin, message=message))


def _ready_made(name: str) -> Path:
    return Path(str(files("conf").joinpath(f"{name}.yaml")))


def _parse_file(text: str) -> Mapping[Any, Any]:
    """Parse the text of a file, whose top must be a mapping (or empty)."""
    node = checked_node(text, lambda mark: f"line {mark.line + 1}, column {mark.column + 1}: ")
    if node is not None and not isinstance(node, yaml.MappingNode):
        raise InvalidValueError("is not a mapping of sections, such as 'space:', to their keys")
    return cast(Mapping[Any, Any], _plain(lambda: OmegaConf.create(text)))


def _parse_argument(rule: Rule, text: str) -> object:
    """Parse the text of an argument as its rule wants it: verbatim, a comma list, or YAML as OmegaConf reads it."""
    if rule.verbatim:
        value = None if rule.optional and text in ("null", "~") else _unquoted(text)
        return _plain_value(lambda: OmegaConf.create({"value": value}))
    if not text:
        raise InvalidValueError(f"no value after '='; give {rule.type_text}")
    if rule.listed and "," in text and text[0] not in "[{":
        text = f"[{text}]"
    return _parse_value(text)


def _parse_value(text: str) -> object:
    checked_node(text, lambda _: f"'{shorten(text)}' is not valid YAML: ")
    return _plain_value(lambda: OmegaConf.from_dotlist([f"value={text}"]))


def _plain_value(build: Callable[[], DictConfig]) -> object:
    return cast(dict[str, object], _plain(build))["value"]


@held_back()
def _plain(build: Callable[[], object]) -> object:
    """Return what OmegaConf builds as plain containers, its errors as ours; interpolations stay as they are."""
    try:
        return OmegaConf.to_container(build())
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InvalidValueError(f"{where}{error.problem or error.context}") from None
    except (OmegaConfBaseException, yaml.YAMLError, ValueError) as error:  # ValueError: ``!!int x``, 5000 digits
        raise InvalidValueError(shorten(str(error).splitlines()[0])) from None
    except TAG_ERRORS:
        raise InvalidValueError(TAG_MESSAGE) from None
    except RecursionError:
        raise InvalidValueError("is nested too deeply") from None


def _unquoted(text: str) -> str:
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" and text[0] not in text[1:-1]
    return text[1:-1] if quoted else text


def _resolved(tree: DictConfig, name: str) -> object:
    """Return the value of a key with its interpolations (``${...}``) filled in."""
    section, _, key = name.partition(".")
    if OmegaConf.is_missing(tree[section], key):
        raise InvalidValueError("'???' stands for a value that is missing; give it, or leave the key out")
    try:
        value = OmegaConf.select(tree, name, throw_on_resolution_failure=True)
        value = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException as error:
        raise InvalidValueError(str(error).splitlines()[0]) from None
    if isinstance(value, str) and "${" in value:  # it was escaped; whoever reads the run again would fill it in
        raise InvalidValueError(f"'{shorten(value)}' has '${{', which begins an interpolation and can be in no value")
    return value


def _nested(values: Mapping[str, object]) -> dict[str, dict[str, object]]:
    sections: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = value
    return sections


_FIELDS = {written: name for name, written in WRITTEN.items()}


def _as_fields(sections: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    return {
        section: {_FIELDS.get(key, key): value for key, value in values.items()} for section, values in sections.items()
    }


def _flow(value: object) -> str:
    """Write a value as an argument would give it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return "null" if value is None else str(value) or "''"
