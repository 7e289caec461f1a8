"""What of the GPU device can be checked without a GPU: how visits are made of launches. The rest is in test_gpu.py."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tasks import bmm, cuda, flush
from tasks.cuda import AGAIN_S, CudaDevice
from tasks.family import Bundle, Family
from tasks.gemm import Gemm, kind_of
from tasks.measure import measure_bundle
from tasks.pool import OperandPool, Operands
from tasks.settings import Timing
from tasks.support import Architecture
from tasks.telemetry import Reading
from tests.builders import up_family

CALL_S = 20e-6


class FakeEvent:
    """An event of a device that does at once what it is told, and on whose clock every call takes CALL_S."""

    calls = 0

    def __init__(self, **_: object) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = FakeEvent.calls * CALL_S

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return False  # the calls before it still run: they were queued in time

    def elapsed_time(self, other: "FakeEvent") -> float:
        return max((other.at - self.at) * 1e3, 1e-6)


FACTS = SimpleNamespace(
    name="Fake",
    uuid="1-2",
    multi_processor_count=4,
    L2_cache_size=2**20,
    total_memory=2**33,
    pci_domain_id=0,
    pci_bus_id=23,
    pci_device_id=1,
)


_call = bmm.call


def counted(gemm: Gemm, operands: Operands) -> None:
    FakeEvent.calls += 1
    _call(gemm, operands)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    """A device whose kernels run on the CPU, whose graphs call them, and of which NVML knows nothing."""
    for name, value in {
        "is_available": True,
        "device_count": 1,
        "get_device_properties": FACTS,
        "get_device_capability": (9, 0),
        "mem_get_info": (2**33, 2**33),
        "memory_reserved": 0,
        "memory_allocated": 0,
        "synchronize": None,
        "empty_cache": None,
        "Stream": None,
        "stream": nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(bmm, "call", counted)
    monkeypatch.setattr(cuda, "capture", lambda work: SimpleNamespace(replay=work))
    opened = CudaDevice()
    opened.torch_device = torch.device("cpu")
    return opened


@pytest.mark.parametrize(
    ("changes", "launch", "lead"),
    [
        ({}, "graph", 1),
        ({"lead_calls": 0}, "graph", 0),
        ({"l2": "hot"}, "graph", 1),
        ({"l2": "flush"}, "stream", 0),
        ({"visit_us": 0.1}, "stream", 0),
        ({"visit_us": 0.1, "l2": "hot"}, "stream", 1),
        ({"power": "burst"}, "graph", 1),
    ],
)
def test_a_family_is_measured_in_one_way(device: CudaDevice, changes: dict[str, Any], launch: str, lead: int) -> None:
    timing = Timing(min_rounds=3, max_rounds=3, soak_min_s=0.05, soak_max_s=0.1, **changes)
    result = measure_bundle(device, Bundle(families=(fp32(up_family([128, 192, 256])),)), timing)
    assert {(facts.status, facts.launch) for facts in result.facts} == {("ok", launch)}
    assert len({(sample.calls, sample.lead_calls) for sample in result.samples}) == 1
    assert {sample.lead_calls for sample in result.samples} == {lead}
    assert (result.rounds, len(result.samples)) == (3, 9)
    assert device.soaked == (timing.power == "sustained")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"lead_calls": 0}, ["flush"]),  # MAX_CALLS calls of so small a Gemm do not read three caches' worth
        ({"l2": "flush"}, ["flush"] * 5),
        ({"visit_us": 0.1}, ["flush"] * 5),
        ({"power": "burst"}, ["idle"] + ["flush"] * 20),
        ({"power": "burst", "l2": "flush"}, ["idle"] + ["flush"] * 20),
    ],
)
def test_a_call_is_launched_while_the_device_flushes_where_nothing_else_runs_before_it(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], expected: list[str]
) -> None:
    done: list[str] = []
    size = 8 if "lead_calls" in changes else 128
    (gemm,) = fp32(up_family([size], h=16 if size == 8 else 64)).gemms
    monkeypatch.setattr(device, "_flush_s", 1e-4)
    visits, _ = device.prepare([gemm], Timing(**changes))
    monkeypatch.setattr(device, "flush", lambda: done.append("flush"))
    monkeypatch.setattr("tasks.cuda.time.sleep", lambda seconds: done.append("idle"))
    visits[gemm].enqueue()
    assert done == expected


def test_one_after_another_each_call_has_events_of_its_own(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes: list[int] = []
    monkeypatch.setattr(flush, "FLUSH_BYTES", 2 * 3 * 2**20)  # two flushes of this cache of 1 MiB
    monkeypatch.setattr(device, "flush", lambda: flushes.append(FakeEvent.calls))
    before, timing = FakeEvent.calls, Timing(protocol="sequential", warmup_s=0.0)
    result = measure_bundle(device, Bundle(families=(fp32(up_family([16, 32], h=16)),)), timing)
    assert [sample.seconds for sample in result.samples] == pytest.approx([CALL_S] * 200)
    assert {(facts.status, facts.launch) for facts in result.facts} == {("ok", "stream")}
    told = [number - before for number in flushes]
    assert told[::2] == told[1::2] == [*range(1, 151), *range(152, 302)]  # the first call of each is checked


def test_what_a_search_comes_to_later_makes_as_many_calls_as_what_it_has_measured(device: CudaDevice) -> None:
    """The first level's longest sweep, of the smallest, is also that of levels which have no such one."""
    small, *others = (Gemm(kind="mm", b=1, m=32, n=n, k=64, dtype="fp32", layout="nt") for n in (128, 400, 384, 392))
    first, _ = device.prepare([small, others[0]], Timing())
    later, _ = device.prepare(others[1:], Timing(), further=True)
    (calls,) = {visit.calls for visit in (*first.values(), *later.values())}
    again, _ = device.prepare(others[1:], Timing())
    assert {visit.calls for visit in again.values()} < {*range(calls)}  # by themselves they would make fewer


def test_a_long_call_stays_alone_beside_short_ones(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Bundle(families=(fp32(up_family([128, 192, 256])),))
    known = dict(zip(of.gemms, (25, 1, 25), strict=True))
    monkeypatch.setattr(cuda, "shared_calls", lambda seconds, timing, typical: {gemm: known[gemm] for gemm in seconds})
    result = measure_bundle(device, of, Timing(min_rounds=2, max_rounds=2, soak_min_s=0, soak_max_s=0))
    assert [facts.launch for facts in result.facts] == ["graph", "stream", "graph"]
    visits = {(s.gemm_id, s.calls, s.lead_calls) for s in result.samples}
    first, alone, last = (gemm.gemm_id for gemm in of.gemms)
    assert (alone, 1, 0) in visits
    assert {(name, lead) for name, _, lead in visits} == {(first, 1), (alone, 0), (last, 1)}


@pytest.mark.parametrize(
    ("kept", "asked", "loaded"),
    [(False, 1.5, 1.5), (True, 1.5, AGAIN_S), (False, 3, 3), (True, 3, 3), (True, 0.5, 0.5)],
)
def test_a_device_that_settled_before_is_loaded_for_less_unless_told_how_long(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, kept: bool, asked: float, loaded: float
) -> None:
    now = count()
    monkeypatch.setattr(
        CudaDevice, "clock", lambda self: next(now) / 100
    )  # a hundredth of a second passes at each look
    device.soaked = kept
    device.renew()
    assert (device.soaked, device.settles) == (False, kept)
    timing = Timing(min_rounds=2, max_rounds=2, soak_min_s=asked, soak_max_s=5)
    result = measure_bundle(device, Bundle(families=(fp32(up_family([16, 32], h=16)),)), timing)
    assert device.soaked
    assert result.prepare_s + result.soak_s == pytest.approx(loaded, abs=0.1)


def test_a_device_that_does_not_settle_is_loaded_for_no_more_than_was_asked(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = count()
    monkeypatch.setattr(CudaDevice, "clock", lambda self: next(now) / 100)
    monkeypatch.setattr(cuda, "capped", lambda readings: False)
    monkeypatch.setattr(cuda, "settled", lambda readings: False)
    monkeypatch.setattr(device, "_nvml", SimpleNamespace(reading=unread, energy_j=lambda: None))
    timing = Timing(min_rounds=2, max_rounds=2, soak_min_s=0, soak_max_s=0.5)
    result = measure_bundle(device, Bundle(families=(fp32(up_family([16, 32], h=16)),)), timing)
    assert result.soak_s == pytest.approx(0.5, abs=0.1)


def unread() -> Reading:
    return Reading(None, None, None, None, 0)


def test_where_nothing_can_be_captured_the_launches_queue(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "capture", lambda work: None)
    timing = Timing(min_rounds=2, max_rounds=2, soak_max_s=0, soak_min_s=0)
    result = measure_bundle(device, Bundle(families=(fp32(up_family([16, 32], h=16)),)), timing)
    assert {facts.launch for facts in result.facts} == {"queued"}
    assert len(result.samples) == 4


def test_memory_that_runs_out_is_reported_for_each_gemm_and_given_back(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(OperandPool, "__init__", full)
    result = measure_bundle(device, Bundle(families=(fp32(up_family([16, 32], h=16)),)), Timing())
    assert {(facts.status, facts.message) for facts in result.facts} == {("oom", "CUDA out of memory")}
    assert (result.samples, result.stop_reason) == ((), "nothing")


def test_a_second_try_without_the_pools_of_before_may_fit(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    make, close = OperandPool.__init__, CudaDevice.close

    def full_at_first(self: OperandPool, *arguments: Any, **options: Any) -> None:
        if not closed:
            raise torch.OutOfMemoryError("CUDA out of memory")
        make(self, *arguments, **options)

    def note_and_close(self: CudaDevice) -> None:
        closed.append(True)
        close(self)

    monkeypatch.setattr(OperandPool, "__init__", full_at_first)
    monkeypatch.setattr(CudaDevice, "close", note_and_close)
    timing = Timing(min_rounds=2, max_rounds=2, soak_max_s=0, soak_min_s=0)
    result = measure_bundle(device, Bundle(families=(fp32(up_family([16, 32], h=16)),)), timing)
    assert closed == [True]
    assert {facts.status for facts in result.facts} == {"ok"}


@pytest.mark.parametrize("dtype", ["fp8", "fp8_rowwise", "int8"])
@pytest.mark.parametrize(("l2", "launch"), [("rotate", "graph"), ("flush", "stream")])
def test_one_byte_elements_are_measured_and_no_scale_is_made_while_they_are(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, dtype: str, l2: str, launch: str
) -> None:
    gemms = [part.gemm for c in in_dtype(up_family([16, 32], h=16), dtype).candidates for part in c.parts]
    visits, failures = device.prepare(gemms, Timing(l2=l2, visit_us=100.0))
    assert failures == []
    drawn: list[int] = []
    monkeypatch.setattr(torch, "rand", drawn.append)
    for gemm, visit in visits.items():
        assert visit.enqueue().seconds() == pytest.approx(CALL_S)
        assert visit.launch == launch
        pool = device._pools["sweep" if launch == "graph" else "ring"]
        assert pool.outputs.dtype == (torch.int32 if dtype == "int8" else torch.bfloat16)
        assert gemm.output_element_bytes == pool.outputs.element_size()
    assert drawn == []


@pytest.mark.parametrize(
    ("capability", "dtype", "message"),
    [
        ((7, 0), "bf16", "bf16 needs compute capability 8.0, Fake has 7.0"),
        ((8, 0), "fp8", "fp8 needs compute capability 8.9, Fake has 8.0"),
        ((8, 0), "fp8_rowwise", "fp8_rowwise needs compute capability 8.9, Fake has 8.0"),
        ((8, 0), "bf16", None),
        ((7, 0), "int8", None),
    ],
)
def test_what_a_gpu_cannot_multiply_is_known_by_its_capability(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: str, message: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    (gemm,) = (part.gemm for part in in_dtype(up_family([128]), dtype).candidates[0].parts)
    visits, failures = device.prepare([gemm], Timing())
    assert [(failure.status, failure.message) for failure in failures] == (
        [] if message is None else [("unsupported", message)]
    )
    assert bool(visits) == (message is None)


def test_an_amd_gpu_is_known_by_its_architecture(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = SimpleNamespace(**{**vars(FACTS), "gcnArchName": "gfx90a:sramecc+:xnack-"})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    device.info = replace(device.info, kind="rocm")
    assert device.architecture == Architecture(kind="rocm", gpu="Fake", gfx="gfx90a")
    (gemm,) = (part.gemm for part in in_dtype(up_family([128]), "fp8").candidates[0].parts)
    assert device.unsupported(gemm) == "fp8 needs an MI300 or later (gfx942, gfx950), Fake is gfx90a"


def fp32(family: Family) -> Family:
    """The Family in a dtype in which a CPU is fast and exact."""
    return in_dtype(family, "fp32")


def in_dtype(family: Family, dtype: str) -> Family:
    """The same shapes in another dtype."""
    candidates = tuple(
        replace(c, parts=tuple(replace(p, gemm=replace(p.gemm, kind=kind_of(dtype), dtype=dtype)) for p in c.parts))
        for c in family.candidates
    )
    return replace(family, dtype=dtype, candidates=candidates)
