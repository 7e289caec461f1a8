"""The rules of alignment: which dimensions are multiples of enough elements, whole and on one rank."""

from orchestrator.check_case import Case
from orchestrator.check_finding import FAIL, PASS, SKIP, WARN, Verdict
from orchestrator.check_memory import VOCABULARY_MULTIPLE
from orchestrator.check_parameters import dense_layers, parameters
from orchestrator.reshape import follows_h, reshaped
from orchestrator.shape import padded_vocabulary
from tasks.gemm import largest_power_of_two

ROWS = 64
"""Rows of the smallest common tile of a matmul kernel."""


def vocabulary(case: Case) -> Verdict:
    """Rule 1: v is a multiple of 64, and what a rank holds of it too."""
    v, tp = case.model.v, case.tp
    padded = padded_vocabulary(v, tp)
    added = parameters(reshaped(case.model, {"v": padded})) - parameters(case.model)
    note = f"Megatron pads to {padded} (a multiple of 128·tp), {added:+,} parameters" if added else ""
    power = largest_power_of_two(v // tp) if v % tp == 0 else 0
    if v % (VOCABULARY_MULTIPLE * tp) == 0:
        return Verdict(status=PASS, value=v // tp, reason=f"v={v} is a multiple of 64·tp = {VOCABULARY_MULTIPLE * tp}")
    if v % tp:
        reason = f"tp={tp} does not divide v={v}"
    elif v % VOCABULARY_MULTIPLE:
        reason = f"v={v} is no multiple of 64; the largest power of two of v/tp = {v // tp} is {power}"
    else:
        reason = f"v={v} is a multiple of 64, but the largest power of two of v/tp = {v // tp} is {power}"
    status = WARN if power >= case.least else FAIL
    return Verdict(status=status, value=_share(v, tp), reason="; ".join(filter(None, (reason, note))), levers=("v",))


def tokens(case: Case) -> Verdict:
    """Rule 3: b·s, the rows of every activation. Rows are no operand's alignment: a tile is left part empty."""
    rows = case.b * case.s
    power = largest_power_of_two(rows)
    text = f"b·s = {case.b}·{case.s} = {rows}, whose largest power of two is {power}"
    decode = "" if case.training else f"; decoding has only b = {case.b} rows"
    if power >= case.full:
        return Verdict(status=PASS, value=rows, reason=text + decode)
    text += f"; gains end at {case.full}{decode}"
    return Verdict(status=WARN, value=rows, reason=text, levers=("b", "s"))


def head_dim(case: Case) -> Verdict:
    """Rule 3: h/a, the reduction dimension of the attention scores."""
    model = case.model
    levers = ("a", "h") if follows_h(model) else ("head_dim",)
    return _aligned(case, model.head_dim, "h/a" if follows_h(model) else "head_dim", levers)


def hidden(case: Case) -> Verdict:
    """Rule 3: h/t."""
    return _aligned_share(case, "h")


def d_ff(case: Case) -> Verdict | None:
    """The part of a dense layer's d_ff that a rank holds."""
    return _aligned_share(case, "d_ff") if dense_layers(case.model) else None


def expert_d_ff(case: Case) -> Verdict | None:
    """The part of an expert that a rank holds, where experts are split by tp."""
    return _aligned_share(case, "expert_d_ff") if case.model.experts else None


def shared_d_ff(case: Case) -> Verdict | None:
    """The part of the shared experts that a rank holds."""
    return _aligned_share(case, "shared_d_ff") if case.model.shared_d_ff else None


def swiglu(case: Case) -> Verdict:
    """Rule 6: 8h/3 is where to search; what counts is how the d_ff that was chosen does among its neighbours."""
    model = case.model
    if model.mlp != "swiglu" or not dense_layers(model):
        why = "experts are not sized by 8h/3" if model.mlp == "swiglu" else "the MLP is GELU"
        return Verdict(status=SKIP, value=None, reason=f"not applied: {why}")
    place = _from_rule_of_thumb(model.d_ff, model.h)
    family = case.family("d_ff")
    found = None if family is None else family.find(model)
    if family is None or found is None:
        missing = "" if family is None else f", not among the {len(family.values)} that were measured"
        aligned = _aligned_share(case, "d_ff")
        status = PASS if aligned.status == PASS else WARN
        return Verdict(status=status, value=model.d_ff, reason=f"{place}{missing}; {aligned.reason}", levers=("d_ff",))
    behind = (found.relative - 1) * 100
    reason = f"d_ff {model.d_ff} at tp {case.tp}: measured rank {found.rank} of {len(family.values)} on {family.gpu}"
    if found.tie_group == 1:
        return Verdict(status=PASS, value=model.d_ff, reason=f"{reason}, cannot be told from the best; {place}")
    reason = f"{reason}, {behind:.1f}% behind the best; {place}"
    return Verdict(status=WARN, value=model.d_ff, reason=reason, levers=("d_ff",), among=family.winners)


def expert_tokens(case: Case) -> Verdict | None:
    """Rows that one expert gets of a microbatch, were they spread evenly."""
    model = case.model
    if not model.experts:
        return None
    rows = case.b * (case.s if case.training else 1)
    share = rows * model.topk / model.experts
    step = "" if case.training else " a decoding step"
    reason = f"{rows} rows{step} · topk {model.topk} / {model.experts} experts = {share:.4g} rows an expert"
    if share >= ROWS:
        return Verdict(status=PASS, value=share, reason=reason)
    reason += f", fewer than the {ROWS} of the smallest common tile: the experts' weights are read for few rows"
    return Verdict(status=WARN, value=share, reason=reason, levers=("b",))


def _aligned_share(case: Case, dimension: str) -> Verdict:
    size = case.value(dimension)
    if size % case.tp:
        reason = f"tp={case.tp} does not divide {dimension}={size}"
        return Verdict(status=FAIL, value=_share(size, case.tp), reason=reason, levers=(dimension, "tp"))
    return _aligned(case, size // case.tp, f"{dimension}/tp", (dimension, "tp"))


def _aligned(case: Case, size: int, name: str, levers: tuple[str, ...]) -> Verdict:
    power = largest_power_of_two(size)
    text = (
        f"{name} = {size}, whose largest power of two is {power} ({power * case.element_bytes} bytes in {case.dtype})"
    )
    if power >= case.full:
        return Verdict(status=PASS, value=size, reason=text)
    if power >= case.least:
        text += f"; gains end at {case.full} ({case.full * case.element_bytes} bytes)"
        return Verdict(status=WARN, value=size, reason=text, levers=levers)
    text += f"; below {case.least} ({case.least * case.element_bytes} bytes) tensor cores lose most of their rate"
    return Verdict(status=FAIL, value=size, reason=text, levers=levers)


def _share(size: int, tp: int) -> int | float:
    return size / tp if size % tp else size // tp


def _from_rule_of_thumb(d_ff: int, h: int) -> str:
    percent = (d_ff / (8 * h / 3) - 1) * 100
    return f"{abs(percent):.1f}% {'above' if percent >= 0 else 'below'} 8h/3 = {8 * h / 3:.1f}"
