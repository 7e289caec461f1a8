"""Models whose dimensions the tests know by heart (from their published configurations), and a check by one rule."""

from dataclasses import replace

from orchestrator import catalogue
from orchestrator.check import check
from orchestrator.check_case import Case
from orchestrator.check_finding import Finding
from orchestrator.model import Model

LLAMA_2_7B = Model(name="llama-2-7b", h=4096, layers=32, a=32, kv=32, head_dim=128, d_ff=11008, v=32000)
LLAMA_3_8B = Model(name="llama-3-8b", h=4096, layers=32, a=32, kv=8, head_dim=128, d_ff=14336, v=128256)
GPT_3_2_7B = Model(
    name="gpt-3-2.7b",
    h=2560,
    layers=32,
    a=32,
    kv=32,
    head_dim=80,
    d_ff=10240,
    v=50257,
    mlp="gelu",
    tied=True,
    positions=2048,
    norm="layer",
    linear_bias=True,
    qkv_bias=True,
)
MIXTRAL = Model(
    name="mixtral-8x7b",
    h=4096,
    layers=32,
    a=32,
    kv=8,
    head_dim=128,
    d_ff=14336,
    v=32000,
    experts=8,
    topk=2,
    expert_d_ff=14336,
)


def found(case: Case, rule: str) -> Finding:
    """What one rule finds."""
    (finding,) = (finding for finding in check(case) if finding.rule == rule)
    return finding


def on(case: Case, gpu: str) -> Case:
    """The case on a GPU of the catalogue."""
    return replace(case, gpu=catalogue.load()[gpu])


def offers(finding: Finding) -> list[tuple[str, int]]:
    """The suggested dimensions and values."""
    return [(suggestion.dimension, suggestion.value) for suggestion in finding.suggestions]
