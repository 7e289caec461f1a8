"""What several verbs share: the arguments that make a configuration, and those that name a run."""

import argparse
import sys
from collections.abc import Mapping
from types import MappingProxyType

from orchestrator import config as configuration
from orchestrator.completion import completed, run_names, words_of
from orchestrator.errors import ConfigError, Problem
from orchestrator.rules import Text
from orchestrator.schema import Config, schema_keys
from orchestrator.verbs.arguments import add_forms, add_places
from orchestrator.words import RESUME_WORDS, Key

DEFAULT_CONF = "auto"
SWEEP: Mapping[str, Key] = MappingProxyType(
    {
        "conf": Key(rule=Text(), help="a ready-made sweep, or the path of your own"),
        "model": Key(rule=Text(), help="a model whose dimensions the sweep takes, or a config.json (Hugging Face)"),
    }
)
"""Words of a sweep that are no keys of its configuration."""
NO_KEYS: Mapping[str, Key] = MappingProxyType({})


def add_sweep(parser: argparse.ArgumentParser, *, as_json: str, as_csv: str, more: Mapping[str, Key] = NO_KEYS) -> None:
    """Add ``conf=NAME``, ``model=NAME``, ``key=value``, and ``--cfg`` or a form. more: keys of this verb alone."""
    words = parser.add_argument(
        "words",
        nargs="*",
        metavar="conf=NAME | model=NAME | key=value",
        help="the sweep, the model whose dimensions it takes, and values to replace",
    )
    completed(words, words_of(lambda: {**SWEEP, **more, **schema_keys()}))
    forms = add_forms(parser, as_json=as_json, as_csv=as_csv)
    forms.add_argument("--cfg", action="store_true", help="print the resolved configuration and stop")


def configured(arguments: argparse.Namespace) -> Config:
    """Compose the configuration that the words ask for; the last ``conf=`` counts."""
    words: list[str] = arguments.words
    if foreign := [word for word in words if word.partition("=")[0] in RESUME_WORDS]:
        message = "only a run is resumed: python -m orchestrator resume=RUN"
        raise ConfigError([Problem(origin=f"argument {word}", message=message) for word in foreign])
    names = [word.removeprefix("conf=") for word in words if word.startswith("conf=")]
    overrides = [word for word in words if not word.startswith("conf=")]
    return configuration.compose(names[-1] if names else DEFAULT_CONF, overrides)


def printed_cfg(arguments: argparse.Namespace, config: Config) -> bool:
    """Print the resolved configuration where ``--cfg`` asks for it; tell whether it did."""
    if arguments.cfg:
        sys.stdout.write(configuration.to_yaml(config))
    return bool(arguments.cfg)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add ``RUN``, ``--dir`` and ``--spool``."""
    run = parser.add_argument(
        "run", nargs="?", default="latest", metavar="RUN", help="path, URI, name or latest (the default)"
    )
    completed(run, run_names)
    add_places(parser)
