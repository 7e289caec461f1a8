"""What ``check`` found, in the terminal and as plain values."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.check_case import Case
from orchestrator.check_finding import FAIL, PASS, SKIP, STATUSES, WARN, Finding, Suggestion
from orchestrator.check_measured import Gain
from orchestrator.check_parameters import parameters
from orchestrator.drawing import write
from orchestrator.forms import CsvTable

CSV_COLUMNS = ("number", "rule", "title", "status", "value", "reason", "suggestions")
STYLES = {PASS: "green", WARN: "yellow", FAIL: "bold red", SKIP: "dim"}


def document(case: Case, findings: Sequence[Finding], notes: Sequence[str]) -> dict[str, Any]:
    """Return everything as plain values; docs/check.md describes them."""
    return {
        "ok": all(finding.status != FAIL for finding in findings),
        "model": asdict(case.model) | {"parameters": parameters(case.model)},
        "tp": case.tp,
        "b": case.b,
        "s": case.s,
        "gpu": None if case.gpu is None else case.gpu.key,
        "mode": "training" if case.training else "inference",
        "dtype": case.dtype,
        "counts": counts(findings),
        "findings": [asdict(finding) for finding in findings],
        "notes": list(notes),
    }


def csv_table(findings: Sequence[Finding], notes: Sequence[str]) -> CsvTable:
    """Return a row a finding; its suggestions are in one cell."""
    return CsvTable(columns=CSV_COLUMNS, rows=[asdict(finding) for finding in findings], notes=tuple(notes))


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """Return how many findings have each status."""
    found = Counter(finding.status for finding in findings)
    return {status: found[status] for status in STATUSES}


def show(case: Case, findings: Sequence[Finding], notes: Sequence[str], console: Console | None = None) -> None:
    """Print a line or more for each rule; colour only on a terminal, and not under ``NO_COLOR``."""
    write(lambda console: _draw(case, findings, notes, console), console)


def _draw(case: Case, findings: Sequence[Finding], notes: Sequence[str], console: Console) -> None:
    for line in _heading(case):
        console.print(Text(line, style="bold cyan"))
    grid = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(2):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        grid.add_row(Text(finding.number), Text(finding.status, style=STYLES[finding.status]), _told(case, finding))
    console.print(grid)
    for note in case.model.notes:
        console.print(Text(note, style="dim"))
    for note in notes:  # in one piece: a command is to be copied
        console.print(Text(note, style="yellow"), soft_wrap=True)
    console.print(Text(", ".join(f"{count} {status}" for status, count in counts(findings).items() if count)))


def _heading(case: Case) -> Iterator[str]:
    model = case.model
    mlp = f"{model.mlp} d_ff={model.d_ff}" if model.d_ff else model.mlp
    if model.experts:
        mlp += f" experts={model.experts} topk={model.topk} expert_d_ff={model.expert_d_ff}"
    yield (
        f"{model.name or 'model'}: h={model.h} a={model.a} kv={model.kv} head_dim={model.head_dim} {mlp} v={model.v} "
        f"layers={model.layers}, {parameters(model):,} parameters"
    )
    gpu = "no gpu" if case.gpu is None else f"{case.gpu.key} ({case.gpu.memory_gb:g} GB)"
    mode = "training" if case.training else "inference"
    yield f"tp={case.tp} b={case.b} s={case.s} {case.dtype}, {mode}, {gpu}"


def _told(case: Case, finding: Finding) -> Text:
    text = Text(f"{finding.title}: ", style="bold").append(finding.reason, style="not bold")
    for suggestion in finding.suggestions:
        text.append(f"\n→ {_advice(case, suggestion)}", style="cyan")
    if not finding.suggestions and finding.status in (WARN, FAIL):
        text.append("\n→ no single change passes without making another rule worse", style="dim")
    return text


def _advice(case: Case, suggestion: Suggestion) -> str:
    cost = "no parameters"
    if suggestion.parameters:
        cost = f"{suggestion.parameters:+,} parameters ({suggestion.percent:+.2f}%)"
    followers = _followers(case, suggestion)
    gain = "" if suggestion.gain is None else f"; {_gained(suggestion.gain)}"
    return f"{suggestion.dimension} {suggestion.value}{followers}: {cost}{gain}"


def _followers(case: Case, suggestion: Suggestion) -> str:
    """Name the dimensions that change with the suggested one."""
    changed = case.changed(suggestion.dimension, suggestion.value)
    names = [name for name in ("kv", "head_dim") if name != suggestion.dimension]
    moved = [f"{name} {changed.value(name)}" for name in names if changed.value(name) != case.value(name)]
    return f" ({', '.join(moved)})" if moved else ""


def _gained(gain: Gain) -> str:
    bounds = "" if gain.low is None or gain.high is None else f" ({gain.low:.1f} to {gain.high:.1f})"
    verb = "gains" if gain.percent >= 0 else "loses"
    if verb == "loses" and bounds:
        bounds = f" ({-gain.high:.1f} to {-gain.low:.1f})" if gain.low is not None and gain.high is not None else ""
    return f"measured, it {verb} {abs(gain.percent):.1f}%{bounds}"
