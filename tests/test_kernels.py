"""Kernels' names: read from a graph's text; none on a CPU, where measuring is as without."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.store import RunStore
from tasks.device import Device, open_device
from tasks.kernels import kernel_names, measure_bundle, names_in
from tasks.settings import Timing
from tests.builders import as_bundle, up_family

NVJET = r"""
"graph_1_node_0"[style="bold" shape="record" label="{KERNEL
| {ID | 0 (topoId: 0) | nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT\<\<\<132,384,230400\>\>\>}
| {{node handle | func handle} | {0x00007FC44A2F36D0 | 0x000000000D55C270}}
| {cooperative | 0}
| {priority | 0}
}"];
"""

SPLIT_K = r"""
"graph_1_node_0"[style="solid" shape="record" label="{
MEMSET
| {{ID | node handle | dptr | value | elementSize | width} | {0 (topoId: 2) | 0x1 | 0x2 | 0 | 1 | 640}}}"];

"graph_1_node_1"[style="bold" shape="record" label="{KERNEL
| {ID | 1 (topoId: 1) | ampere_sgemm_128x64_nn\<\<\<\{16,10,4\},128,0\>\>\>}
| {{node handle | func handle} | {0x00007FC44A2F36D0 | 0x000000000D55C270}}
}"];

"graph_1_node_2"[style="bold" shape="record" label="{KERNEL
| {ID | 2 (topoId: 0) | _ZN8cublasLt19splitKreduce_kernelILi32ELi16EEEvi\<\<\<64,256,0\>\>\>}
| {{node handle | func handle} | {0x00007FC44A2F4BD0 | 0x00007FC449703DA0}}
}"];

"graph_1_node_0" -> "graph_1_node_1";
"graph_1_node_1" -> "graph_1_node_2";
"""
"""As cudaGraphDebugDotPrint writes it; topoId counts from the end."""

TIMING = Timing(min_rounds=2, max_rounds=2, soak_min_s=0.0, soak_max_s=0.0)


@pytest.fixture
def cpu() -> Iterator[Device]:
    device = open_device("cpu")
    yield device
    device.close()


def test_one_kernel_is_named() -> None:
    assert names_in(NVJET) == "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT"


def test_two_kernels_are_joined_in_the_order_in_which_they_run_without_memsets() -> None:
    assert names_in(SPLIT_K) == "ampere_sgemm_128x64_nn + void cublasLt::splitKreduce_kernel<32, 16>(int)"
    first, second = SPLIT_K.index('"graph_1_node_1"['), SPLIT_K.index('"graph_1_node_2"[')
    turned = SPLIT_K[second:] + SPLIT_K[first:second]
    assert names_in(turned) == names_in(SPLIT_K)


def test_a_graph_without_a_kernel_has_no_name() -> None:
    assert names_in("") is None
    assert names_in(SPLIT_K[: SPLIT_K.index('"graph_1_node_1"[')]) is None


def test_a_cpu_has_no_kernels(cpu: Device) -> None:
    bundle = as_bundle(up_family([64, 128]))
    assert kernel_names(cpu, bundle.gemms) == {}
    found = measure_bundle(cpu, bundle, TIMING)
    assert [(facts.status, facts.kernel) for facts in found.facts] == [("ok", None), ("ok", None)]
    assert found.rounds == 2


@pytest.mark.ray
def test_a_sweep_that_asks_for_kernels_measures_on_a_cpu_without(tmp_path: Path) -> None:
    small = ("space.h=64", "space.tp=1", "space.seq=16", "space.d_ff=64,128", "space.roles=mlp_up")
    words = ("conf=cpu", *small, "timing.max_seconds=0.1", f"run.dir={tmp_path}", "run.name=it", "run.kernels=true")
    assert cli.main(words) == 0
    facts = RunStore.open(tmp_path / "it").reader().facts().table.to_pylist()
    assert [(row["status"], row["kernel"]) for row in facts] == [("ok", None), ("ok", None)]
    manifest = json.loads((tmp_path / "it" / "manifest.json").read_text("utf-8"))
    assert manifest["config"]["run"]["kernels"] is True
