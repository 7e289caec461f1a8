"""The table of docs/check.md: ``check`` on every ready-made model for tp 1 to 16. Measures nothing."""

from collections.abc import Iterator
from pathlib import Path

from orchestrator.check import check
from orchestrator.check_case import Case
from orchestrator.check_finding import FAIL, PASS, WARN, Finding
from orchestrator.check_report import counts
from orchestrator.model import Model
from orchestrator.models import load_model, names

PAGE = Path(__file__).parents[1] / "docs" / "check.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
TP = (1, 2, 4, 8, 16)
B, S = 4, 4096


def rows(model: Model) -> Iterator[str]:
    """Yield a row of the table for each tp."""
    for tp in TP:
        findings = check(Case(model=model, tp=tp, b=B, s=S))
        found = counts(findings)
        cells = (model.name, tp, found[PASS], found[WARN], found[FAIL], _named(findings, FAIL), _named(findings, WARN))
        yield f"| {' | '.join(map(str, cells))} |"


def table() -> str:
    """Return the whole table."""
    lines = ["| model | tp | pass | warn | fail | fails | warns |", "|---|---:|---:|---:|---:|---|---|"]
    for name in names():
        lines += rows(load_model(name))
    return "\n".join(lines)


def updated(page: str) -> str:
    """Return the page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _named(findings: tuple[Finding, ...], status: str) -> str:
    return ", ".join(f"{finding.rule} {_number(finding)}" for finding in findings if finding.status == status)


def _number(finding: Finding) -> str:
    return "" if finding.value is None else f"{finding.value:.6g}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
