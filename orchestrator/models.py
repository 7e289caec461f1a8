"""The models that a user can name: ready-made ones, and files."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml

from orchestrator import hf_config, model_file
from orchestrator.errors import ConfigError, InvalidValueError, Problem, describe, nearest, printable, shorten, unknown
from orchestrator.model import Model
from orchestrator.model_counts import miscounted
from orchestrator.reachable import exists, is_dir
from orchestrator.yaml_text import TAG_ERRORS, TAG_MESSAGE, checked_node, refuse_duplicates

HF_FILE = "config.json"
_YAML = (".yaml", ".yml")
_MAX_BYTES = 10 * 2**20
"""A larger file holds weights or a tokenizer, not a model's dimensions."""
_MAX_PATH = 4096


@cache
def names() -> tuple[str, ...]:
    """Return the names of the ready-made models, in alphabetical order."""
    entries = (entry.name for entry in files("conf").joinpath("model").iterdir())
    return tuple(sorted(name[:-5] for name in entries if name.endswith(".yaml")))


def load_model(text: str, origin: str = "model") -> Model:
    """Return the model that ``text`` names.

    text: a ready-made model's name, or the path of a Hugging Face config.json, of a directory that holds one, or of a
    YAML file with the names of Model's fields. Raises ConfigError: for an unknown name, which ``origin`` gave, or with
    everything that is wrong with a file.
    """
    if text in names():
        return _from_file(Path(str(files("conf").joinpath("model", f"{text}.yaml"))), f"conf/model/{text}.yaml")
    path = Path(os.path.expanduser(text))
    if not _is_path(text, path):
        hint = f" (a model of your own: give the path of its {HF_FILE} or of a .yaml file)"
        raise ConfigError([Problem(origin=origin, message=unknown("model", shorten(text), names()) + hint)])
    if is_dir(path):
        return _from_file(path / HF_FILE, os.path.join(text, HF_FILE))
    return _from_file(path, text)


def _is_path(text: str, path: Path) -> bool:
    return "/" in text or "\\" in text or text.endswith((".json", *_YAML)) or (bool(text) and exists(path))


def _from_file(path: Path, origin: str) -> Model:
    origin = shorten(origin, _MAX_PATH)
    try:
        values = _yaml(_text(path)) if path.suffix in _YAML else _json(_text(path))
    except InvalidValueError as error:
        raise ConfigError([Problem(origin=origin, message=str(error))]) from None
    parse = model_file.parse if path.suffix in _YAML else hf_config.parse
    model = parse(values, name=_name(path), origin=origin)
    if wrong := miscounted(model):
        raise ConfigError([Problem(origin=origin, message=wrong)])
    texts = {field: tuple(map(printable, getattr(model, field))) for field in ("notes", "sources")}
    return replace(model, name=printable(model.name), origin=origin, notes=texts["notes"], sources=texts["sources"])


def _name(path: Path) -> str:
    """Name a model after its file, or after the directory of a config.json."""
    return (path.absolute().resolve().parent.name if path.name == HF_FILE else path.stem) or path.stem


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise InvalidValueError("is no regular file")
        if path.exists() and path.stat().st_size > _MAX_BYTES:
            raise InvalidValueError(f"is larger than {_MAX_BYTES >> 20} MiB, so it is no {HF_FILE} or .yaml of a model")
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise InvalidValueError(_missing(path)) from None
    except UnicodeError:
        raise InvalidValueError("cannot be read: it is not a UTF-8 text") from None
    except OSError as error:
        raise InvalidValueError(f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise InvalidValueError("cannot be read: no file can have this name") from None


def _missing(path: Path) -> str:
    if path.parent.is_dir() and path.name == HF_FILE:
        return f"there is no such file; a model's directory must hold its {HF_FILE}"
    close = nearest(path.stem, names())
    hint = f"did you mean the ready-made model {' or '.join(close)}? " if close else ""
    return f"there is no such file; {hint}the ready-made models are: {', '.join(names())}"


def _json(text: str) -> Mapping[str, object]:
    try:
        values = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise InvalidValueError(f"line {error.lineno}, column {error.colno}: is not valid JSON: {error.msg}") from None
    except RecursionError:
        raise InvalidValueError("is nested too deeply") from None
    except ValueError as error:  # a number of more than 4300 digits
        raise InvalidValueError(f"is not valid JSON: {shorten(str(error))}") from None
    return _mapping(values, f"no JSON object with a model's keys, as in {HF_FILE}")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidValueError(f"found duplicate key {shorten(twice)}")
    return values


def _yaml(text: str) -> Mapping[str, object]:
    node = checked_node(text, lambda mark: f"line {mark.line + 1}: is not valid YAML: ")
    if node is not None:
        refuse_duplicates(node)
    try:
        values = None if node is None else yaml.SafeLoader("").construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise InvalidValueError(f"line {error.problem_mark.line + 1}: is not valid YAML: {error.problem}") from None
    except TAG_ERRORS:
        raise InvalidValueError(TAG_MESSAGE) from None
    except ValueError as error:  # a number of more than 4300 digits, a date that is none
        raise InvalidValueError(f"is not valid YAML: {shorten(str(error))}") from None
    return _mapping(values, "no mapping of a model's dimensions, such as 'h: 4096'")


def _mapping(values: object, wanted: str) -> Mapping[str, object]:
    if not isinstance(values, dict):
        raise InvalidValueError(f"{describe(values)} is {wanted}")
    return values
