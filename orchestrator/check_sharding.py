"""The rules of sharding: what tp must divide, and the heads."""

from orchestrator.check_case import Case
from orchestrator.check_finding import FAIL, PASS, WARN, Verdict
from orchestrator.reshape import follows_h

FLASH_HEAD_DIMS = (32, 64, 96, 128, 192, 256)
"""The sizes that FlashAttention-2 has kernels for; others run as the next larger one (HEADDIM_SWITCH in its source)."""


def attention_batch(case: Case) -> Verdict:
    """Rule 4: b·a/t is an integer."""
    product = case.b * case.model.a
    text = f"b·a/tp = {case.b}·{case.model.a}/{case.tp} = {product / case.tp:g}"
    if product % case.tp:
        return Verdict(status=FAIL, value=product / case.tp, reason=f"{text} is no integer", levers=("b", "tp"))
    return Verdict(status=PASS, value=product // case.tp, reason=text)


def heads(case: Case) -> Verdict:
    """Every rank has the same number of whole attention heads."""
    a, tp = case.model.a, case.tp
    if a % tp:
        reason = f"tp={tp} does not divide a={a}: heads cannot be split evenly"
        return Verdict(status=FAIL, value=a / tp, reason=reason, levers=("tp", "a"))
    return Verdict(status=PASS, value=a // tp, reason=f"a/tp = {a}/{tp} = {a // tp}")


def kv_heads(case: Case) -> Verdict:
    """Key/value heads are split evenly, or each is on the same number of ranks."""
    kv, tp = case.model.kv, case.tp
    if kv % tp == 0:
        return Verdict(status=PASS, value=kv // tp, reason=f"kv/tp = {kv}/{tp} = {kv // tp}")
    if tp % kv == 0:
        reason = f"kv={kv} < tp={tp}: each key/value head is on {tp // kv} ranks, with its weights and its cache"
        return Verdict(status=WARN, value=kv / tp, reason=reason, levers=("tp", "kv"))
    reason = f"kv={kv} and tp={tp}: neither divides the other, so heads can be neither split nor replicated evenly"
    return Verdict(status=FAIL, value=kv / tp, reason=reason, levers=("tp", "kv"))


def attention_kernel(case: Case) -> Verdict:
    """The size of a head is one that fused attention has kernels for."""
    size = case.model.head_dim
    if size in FLASH_HEAD_DIMS:
        return Verdict(status=PASS, value=size, reason=f"FlashAttention has kernels for head_dim {size}")
    levers = ("a", "h") if follows_h(case.model) else ("head_dim",)
    larger = next((dim for dim in FLASH_HEAD_DIMS if dim > size), None)
    if larger is None:
        reason = f"head_dim {size} is above {FLASH_HEAD_DIMS[-1]}, the largest that FlashAttention has kernels for"
    else:
        lost = (larger - size) / larger * 100
        reason = f"FlashAttention runs head_dim {size} as {larger}: {lost:.0f}% of the work is padding"
    return Verdict(status=WARN, value=size, reason=reason, levers=levers)
