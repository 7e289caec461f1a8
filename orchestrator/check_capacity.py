"""The rules of memory: the microbatch as large, and tp as small, as the GPU's memory allows."""

from orchestrator.catalogue import GpuSpec
from orchestrator.check_case import Case
from orchestrator.check_finding import FAIL, PASS, SKIP, WARN, Verdict
from orchestrator.check_memory import (
    bytes_per_parameter,
    fits,
    largest_batch,
    needed_bytes,
    sequence_bytes,
    smallest_tp,
    static_bytes,
    usable_bytes,
)

GB = 1e9
NO_GPU = "needs the GPU's memory: give gpu="


def microbatch(case: Case) -> Verdict:
    """Rule 2: b is as large as possible; doublings count, so the largest power of two that fits will do."""
    if case.gpu is None:
        return Verdict(status=SKIP, value=None, reason=NO_GPU)
    most = largest_batch(case, case.gpu)
    text = f"b={case.b} needs {_needs(case, case.gpu)}"
    if most == 0:
        each = sequence_bytes(case) / GB
        reason = f"{text}; not even one sequence of s={case.s} ({each:.1f} GB) fits"
        return Verdict(status=FAIL, value=0, reason=reason, levers=("tp",))
    if case.b > most:
        return Verdict(status=FAIL, value=most, reason=f"{text}; the largest b that fits is {most}", levers=("b", "tp"))
    if case.b >= 1 << (most.bit_length() - 1):
        return Verdict(status=PASS, value=most, reason=f"{text}; the largest b that fits is {most}")
    return Verdict(status=WARN, value=most, reason=f"{text}; b up to {most} fits", levers=("b",))


def tensor_parallel(case: Case) -> Verdict:
    """Rule 5: t is as small as possible, for every further rank adds communication and makes Gemms smaller."""
    if case.gpu is None:
        return Verdict(status=SKIP, value=None, reason=NO_GPU)
    least = smallest_tp(case, case.gpu)
    kind = "weights, gradients and Adam's state" if case.training else "weights"
    text = (
        f"{kind} at {bytes_per_parameter(case)} bytes a parameter: {static_bytes(case) / GB:.1f} GB a rank at "
        f"tp={case.tp} of {usable_bytes(case.gpu) / GB:.1f} GB"
    )
    smallest = (
        "no tp that splits the model evenly is enough" if least is None else f"the smallest tp that fits is {least}"
    )
    if not fits(case, case.gpu):
        missing = "one sequence's activations" if case.training else "the KV cache"
        hint = "; pipeline stages and sharding over data-parallel ranks are not counted" if case.training else ""
        reason = f"{text}, with {missing} too much; {smallest}{hint}"
        return Verdict(status=FAIL, value=least, reason=reason, levers=("tp",) if case.training else ("tp", "b"))
    status = WARN if least is not None and case.tp > least else PASS
    return Verdict(status=status, value=least, reason=f"{text}; {smallest}", levers=("tp",))


def _needs(case: Case, gpu: GpuSpec) -> str:
    return f"{needed_bytes(case) / GB:.1f} GB of {usable_bytes(gpu) / GB:.1f} GB a rank"
