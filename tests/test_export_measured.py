"""Which Gemms of a run an export is made from, and with which figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError, ExportError
from orchestrator.export.measured import FASTER, NOT_BEST, REPEATED, select
from orchestrator.export.request import Request, parse
from orchestrator.export.selection import Selection
from orchestrator.ranking import rank
from orchestrator.store import RunStore, shard_table
from tasks.family import Bundle, Family
from tasks.settings import Timing
from tests.builders import DEVICE, Cost, as_bundle, measurement, mlp_family, per_flop, up_family
from tests.exports import EXAMPLE
from tests.fleets import Fake, keep, keep_canaries

SHARED = "mm-1x32x128x64-fp16-nt"
"""The up of d_ff = 128, and the gate_up of d_ff = 64."""
CSV = Request(target="csv")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, "run", {})


def takes(seconds: float) -> Cost:
    return lambda gemm, number: seconds


def add(
    store: RunStore,
    item: Family | Bundle,
    cost: Cost,
    *,
    rounds: int = 20,
    gpu: str = DEVICE.gpu,
    protocol: str = "interleaved",
) -> None:
    measured, timing = (
        measurement(item, cost, rounds=rounds, device=replace(DEVICE, gpu=gpu)),
        Timing(protocol=protocol),
    )
    store.write_shard(shard_table(as_bundle(item), measured, timing, attempt=1, code_version="1", plan_hash="p"))


def selected(store: RunStore, request: Request = CSV, *, best: bool = False) -> Selection:
    return select(store, rank(store), request, best=best)


def seconds(selection: Selection) -> dict[str, float]:
    return {entry.gemm.gemm_id: entry.seconds for entry in selection.entries}


def test_a_gemm_of_one_point_has_the_rankings_seconds() -> None:
    store = RunStore.open(EXAMPLE)
    ranking = rank(store)
    ranked = {part["gemm_id"]: part["seconds"] for row in ranking.table.to_pylist() for part in row["parts"]}
    assert seconds(select(store, ranking, CSV)) == ranked
    assert len(ranked) == 1080


def test_a_gemm_of_two_families_has_the_median_of_all_its_samples_once(store: RunStore) -> None:
    add(store, up_family([128]), takes(1e-3), rounds=20)
    add(store, mlp_family([64]), takes(3e-3), rounds=11)
    found = selected(store)
    (entry,) = (entry for entry in found.entries if entry.gemm.gemm_id == SHARED)
    assert entry.seconds == 1e-3  # 20 of 31 samples; the median of the Families' medians would be 2e-3
    assert (entry.spread.samples, entry.spread.least, entry.spread.most) == (31, 1e-3, 3e-3)
    assert entry.spread.mean == pytest.approx((20 * 1e-3 + 11 * 3e-3) / 31)
    assert [use.point["role"] for use in entry.uses] == ["mlp", "mlp_up"]
    assert found.left_out == {REPEATED: 1}


def test_of_shapes_one_after_another_it_is_the_mean_of_the_calls(store: RunStore) -> None:
    add(store, up_family([128]), lambda gemm, call: 1e-3 if call else 11e-3, rounds=100, protocol="sequential")
    add(store, mlp_family([64]), takes(1e-3), rounds=100, protocol="sequential")
    (entry,) = (entry for entry in selected(store).entries if entry.gemm.gemm_id == SHARED)
    assert entry.seconds == pytest.approx(1e-3 + 10e-3 / 200)
    assert entry.spread.samples == 200


def test_families_of_one_bundle_share_their_samples(store: RunStore) -> None:
    add(store, Bundle(families=(mlp_family([64]), up_family([128]))), takes(1e-3), rounds=20)
    (entry,) = (entry for entry in selected(store).entries if entry.gemm.gemm_id == SHARED)
    assert (len(entry.uses), entry.spread.samples) == (2, 20)


def test_over_several_devices_it_is_the_median_of_their_medians(store: RunStore) -> None:
    for uuid, slower, rounds in (("GPU-0", 1.0, 30), ("GPU-1", 3.0, 10)):
        for family in (up_family([128]), mlp_family([64])):
            keep(store, Fake(uuid=uuid), family, takes(1e-3), slower=slower, rounds=rounds)
    assert seconds(selected(store))[SHARED] == pytest.approx(2e-3)


def test_suspects_are_left_out_and_counted(store: RunStore) -> None:
    sound, slow = Fake(uuid="GPU-0", canaries=[1.0] * 4), Fake(uuid="GPU-1", canaries=[1.0, 1.0, 1.2, 1.2])
    keep_canaries(store, sound, slow)
    keep(store, sound, up_family([128]), takes(1e-3), canary=2)
    keep(store, slow, up_family([128]), takes(2e-3), canary=3)
    keep(store, slow, up_family([1024], tp=2), takes(2e-3), canary=3)
    found = selected(store)
    assert seconds(found)[SHARED] == 1e-3
    assert sum(found.left_out.values()) == 1
    (reason,) = found.left_out
    assert reason.startswith("Points that were not measured: suspect (rank --include-suspects takes them in")
    everything = select(store, rank(store, include_suspects=True), CSV)
    assert seconds(everything) == pytest.approx({SHARED: 1.5e-3, "mm-1x32x512x64-fp16-nt": 2e-3})
    assert everything.left_out == {}


def test_what_is_faster_than_the_peak_is_a_fault_and_left_out(store: RunStore) -> None:
    add(store, up_family([128, 256]), per_flop({128: 1 / 500, 256: 1 / 990}))
    found = selected(store)
    assert [entry.gemm.n for entry in found.entries] == [128]
    assert found.left_out == {FASTER: 1}
    told = replace(CSV, facts={"peak_fp16": 1000.0})
    assert [entry.gemm.n for entry in selected(store, told).entries] == [128, 256]


def test_a_summary_is_of_the_candidates_that_tie_with_the_best(store: RunStore) -> None:
    add(store, up_family([128, 256, 512]), per_flop({128: 1.0, 256: 1.3, 512: 1.0}))
    assert [entry.gemm.n for entry in selected(store, best=True).entries] == [128, 512]
    assert selected(store, best=True).left_out == {NOT_BEST: 1}
    assert len(selected(store, replace(CSV, candidates="all"), best=True).entries) == 3


def test_several_gpu_models_are_not_mixed(store: RunStore) -> None:
    add(store, up_family([128]), takes(1e-3))
    add(store, up_family([128]), takes(2e-3), gpu="NVIDIA H100 80GB HBM3")
    with pytest.raises(ExportError, match=r"the run has 2 GPU models: choose one by --gpu: NVIDIA H100 80GB HBM3, NV"):
        selected(store)
    for name in ("NVIDIA H200", "nvidia-h200", "h200"):
        assert seconds(selected(store, replace(CSV, gpu=name))) == {SHARED: 1e-3}
    with pytest.raises(
        ExportError, match=r"--gpu: unknown GPU 'a100'; .*there are: NVIDIA H100 80GB HBM3, NVIDIA H200"
    ):
        selected(store, replace(CSV, gpu="a100"))


def test_selections_join_and_name_what_there_is(store: RunStore) -> None:
    add(store, up_family([128, 256]), takes(1e-3))
    add(store, up_family([128], tp=2), takes(1e-3))
    request = replace(CSV, filters={"tp": (1,), "d_ff": (256, 1024)})
    assert [entry.gemm.n for entry in selected(store, request).entries] == [256]
    with pytest.raises(ExportError, match="nothing was measured with d_ff=256; there is: 128"):
        selected(store, replace(CSV, filters={"tp": (2,), "d_ff": (256,)}))


def test_all_mistakes_of_the_words_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("csv", ["a", "b", "h=0", "rolle=mlp", "sm_version=90", "candidates=few"], {"framework": "vllm"})
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "argument 'h=0'",
        "argument 'rolle=mlp'",
        "argument 'sm_version=90'",
        "argument 'candidates=few'",
        "argument --framework",
        "arguments",
    ]
    assert "did you mean role?" in lines[1]
    assert lines[2].endswith("sm_version is of no use for csv; it takes: none")


def test_words_are_read_by_their_kind() -> None:
    request = parse("vidur", ["run", "role=mlp,qkv", "tp=1,8", "h=4_096", "a=32"], {"into": None}, ("a",))
    assert (request.run, request.filters["role"], request.filters["tp"]) == ("run", ("mlp", "qkv"), (1, 8))
    assert (request.filters["h"], request.facts) == ((4096,), {"a": 32})
