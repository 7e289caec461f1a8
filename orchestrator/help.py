"""The text of ``--help``: verbs, sweeps and every key of the configuration with one line each."""

import shutil
import textwrap

from orchestrator.cli import EXIT_CODES, PROGRAM
from orchestrator.config import conf_names, keys
from orchestrator.models import names
from orchestrator.printing import wrapped
from orchestrator.roles import ROLES
from orchestrator.verbs import VERBS

INTRODUCTION = f"""\
usage: {PROGRAM} [VERB] [conf=NAME|FILE] [key=value ...]

Time GEMM shapes on every GPU of a Ray cluster, and rank model dimensions by
what was measured.

  {PROGRAM} conf=h100                  sweep and rank on H100s
  {PROGRAM} plan conf=h100 space.tp=8  what that would measure
  {PROGRAM} rank latest                the last run's ranking again
  {PROGRAM} resume=latest              go on with a run
"""

CONF = "conf=NAME is a ready-made sweep, or the path of your own YAML file; default: auto"
MODEL = "model=NAME takes a model's dimensions, model=PATH those of a Hugging Face config.json"
LONGEST_CHOICE = 80
KEYS = "key=value replaces a value of the sweep; lists as 1,2,4 or [1,2,4], ranges as {start: 1, stop: 9, step: 2}"


def overview() -> str:
    """Return the whole help, wrapped to the terminal's width."""
    width = max(60, min(100, shutil.get_terminal_size().columns))
    parts = [
        INTRODUCTION,
        "verbs (each has --help):",
        _columns([(name, text) for name, text in VERBS.items()], width),
        _wrap(CONF, width),
        textwrap.fill(", ".join(conf_names()), width, initial_indent="  ", subsequent_indent="  "),
        "",
        _wrap(MODEL, width),
        textwrap.fill(", ".join(names()), width, initial_indent="  ", subsequent_indent="  "),
        "",
        "roles (space.roles=...):",
        _columns([(name, role.help) for name, role in ROLES.items()], width),
        _wrap(KEYS, width),
        "".join(_key(*key, width) for key in keys()),
        _wrap(EXIT_CODES, width),
    ]
    return "\n".join(parts) + "\n"


def _key(name: str, takes: str, default: str, text: str, width: int) -> str:
    choices = f" ({takes})" if "|" in takes and len(takes) < LONGEST_CHOICE else ""
    return "\n".join(wrapped(f"{text}{choices} [{default}]", width, f"  {name:<24} ")) + "\n"


def _wrap(text: str, width: int) -> str:
    return textwrap.fill(text, width)


def _columns(rows: list[tuple[str, str]], width: int) -> str:
    left = max(len(name) for name, _ in rows) + 4
    return "".join(
        textwrap.fill(text, width, initial_indent=f"  {name}".ljust(left), subsequent_indent=" " * left) + "\n"
        for name, text in rows
    )
