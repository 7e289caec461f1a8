"""What Tab offers: asked by bash for real, and the words of each verb."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.cli import verb_parser
from orchestrator.completion import words_of
from orchestrator.config import conf_names
from orchestrator.models import names
from orchestrator.roles import ROLES
from orchestrator.rules import Choice, Choices, Integer, Switch
from orchestrator.schema import schema_keys
from orchestrator.verbs import VERBS
from orchestrator.words import Key
from tasks.gemm import ELEMENT_BYTES

ROOT = Path(cli.__file__).parents[1]
EXAMPLES = {f"examples/{path.name}" for path in (ROOT / "results" / "examples").iterdir() if path.is_dir()}
BASH = """
complete_line() {  # as readline does: sets what a completion function reads, and calls it
    local ours=$1
    COMP_LINE=$2 COMP_POINT=${#2} COMP_TYPE=9 COMPREPLY=()
    read -ra COMP_WORDS <<< "$COMP_LINE"
    [[ $COMP_LINE == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    "$ours" "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" ""
    printf '%s\\037' "${COMPREPLY[@]}"
    printf '\\036'
}
"""

CASES: dict[str, set[str]] = {
    "gemm-orchestrator ": {*VERBS, "conf=", "model=", "resume=", "retry=", "resume_anyway="},
    "gemm-orchestrator pl": {"plan "},
    "gemm-orchestrator timing.pro": {"timing.protocol="},
    "gemm-orchestrator conf=": set(conf_names()),
    "gemm-orchestrator --c": {"--csv", "--cfg"},
    "gemm-orchestrator run resume=examples/h200-h": {"examples/h200-heads "},
    "gemm-orchestrator plan conf=h200 model=ll": {name for name in names() if name.startswith("ll")},
    "gemm-orchestrator plan space.roles=mlp,mlp_": {f"mlp,{name}" for name in ROLES if name.startswith("mlp_")},
    "gemm-orchestrator plan --json timing.protocol=": {"interleaved", "seed", "sequential"},
    "gemm-orchestrator plan space.h.st": {"space.h.start=", "space.h.stop=", "space.h.step="},
    "gemm-orchestrator status ": EXAMPLES,
    "gemm-orchestrator status --json --c": {""},  # one form at a time
    "gemm-orchestrator rank --top 3 ex": EXAMPLES,
    "gemm-orchestrator rank --dir res": {"results/"},
    "gemm-orchestrator compare --sp": {"--spool "},
    "gemm-orchestrator rank --dir results/examples la": {"latest "},
    "gemm-orchestrator rank --dir=results/examples h200-h": {"h200-heads "},
    "gemm-orchestrator compare examples/h200-fp8 examples/h200-h": {"examples/h200-heads "},
    "gemm-orchestrator compare h200=tests/data/l": {"tests/data/llama-3-70b/"},
    "gemm-orchestrator export --to c": {"calculon", "csv"},
    "gemm-orchestrator export examples/h200-heads --to csv --out x dtype=fp16,i": {"fp16,int8 "},
    "gemm-orchestrator check model=llama-2-7b gpu=h1": {"h100", "h100-sxm", "h100-pcie"},
    "gemm-orchestrator capacity mode=": {"prefill", "training", "decode"},
    "gemm-orchestrator capacity results=examples/h200-fp8,examples/h200-h": {"examples/h200-fp8,examples/h200-heads "},
    "gemm-orchestrator layer tr": {"training="},
    "gemm-orchestrator explain m": {"m="},
    "python -m orchestrator pl": {"plan"},
    "python -m orchestrator plan conf=h200 space.dtype=f": {name for name in ELEMENT_BYTES if name.startswith("f")},
}


@pytest.fixture(scope="module")
def offered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """All the lines, completed by one bash with argcomplete's own functions, where the examples are the only runs."""
    bin, folder = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("folder")
    (folder / "results").mkdir()
    (folder / "results" / "examples").symlink_to(ROOT / "results" / "examples")
    (folder / "tests").symlink_to(ROOT / "tests")
    program = f"#!{sys.executable}\nfrom orchestrator.cli import entry\nentry()\n"
    for name, text in (("gemm-orchestrator", program), ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')):
        (bin / name).write_text(text)
        (bin / name).chmod(0o755)
    tools = Path(sys.executable).parent
    script = [
        f'eval "$({tools}/register-python-argcomplete gemm-orchestrator)"',
        f'eval "$({tools}/activate-global-python-argcomplete --dest=-)"',
        BASH,
    ]
    for line in CASES:
        function = "_python_argcomplete_global" if line.startswith("python") else "_python_argcomplete"
        script.append(f"complete_line {function} {shlex.quote(line)}")
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(script)],
        cwd=folder,
        env={"PATH": f"{bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(bin), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    answers = done.stdout.split("\036")[:-1]
    assert len(answers) == len(CASES), done.stderr
    return {line: set(answer.split("\037")[:-1]) for line, answer in zip(CASES, answers, strict=True)}


@pytest.mark.parametrize("line", CASES)
def test_bash_completes(line: str, offered: dict[str, set[str]]) -> None:
    assert offered[line] == CASES[line]


@pytest.mark.parametrize("verb", VERBS)
def test_the_words_of_every_verb_are_completed(verb: str) -> None:
    positional = [action for action in verb_parser(verb)._actions if not action.option_strings]
    assert positional or verb == "release"
    assert all(hasattr(action, "completer") for action in positional)


def test_every_key_of_the_schema_is_offered_with_its_help() -> None:
    (words,) = (action for action in verb_parser("plan")._actions if action.dest == "words")
    found = words.completer(prefix="")  # type: ignore[attr-defined]
    assert {f"{name}=": key.help for name, key in schema_keys().items()}.items() <= found.items()


KEYS = {
    "one": Key(rule=Choice(what="x", names=lambda: ("a", "ab"), optional=True), help=""),
    "many": Key(rule=Choices(what="x", names=lambda: ("a", "b", "c")), help=""),
    "on": Key(rule=Switch(), help=""),
    "size": Key(rule=Integer(), help="a size"),
}


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("", ["one=", "many=", "on=", "size="]),
        ("one=", ["one=a", "one=ab", "one=null"]),
        ("many=", ["many=a", "many=b", "many=c"]),
        ("many=b,", ["many=b,a", "many=b,c"]),  # none twice
        ("on=t", ["on=false", "on=true"]),
        ("size=", []),
        ("other=", []),
    ],
)
def test_values_are_those_of_the_keys_rule(prefix: str, words: list[str]) -> None:
    assert list(words_of(lambda: KEYS)(prefix)) == words


def test_completion_needs_neither_torch_nor_ray() -> None:
    code = (
        "import sys; from orchestrator.cli import verb_parser; import orchestrator.shell;"
        "[verb_parser(verb) for verb in sys.argv[1:]];"
        "assert not {'torch', 'ray'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, *VERBS], check=True, cwd=ROOT, capture_output=True)
