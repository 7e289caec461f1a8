import re

import pytest

from orchestrator.catalogue import GpuSpec, family_or_key, load, match, names
from orchestrator.errors import InvalidValueError
from tasks.gemm import ELEMENT_BYTES

GIB = 2**30
FACTS = {  # sm_count, fp16 TFLOP/s, GB, GB/s, L2 MB, boost MHz, W
    "v100-sxm2-16": (80, 125, 16, 900, 6, 1530, 300),
    "v100-sxm2-32": (80, 125, 32, 900, 6, 1530, 300),
    "a100-sxm-40": (108, 312, 40, 1555, 40, 1410, 400),
    "a100-sxm-80": (108, 312, 80, 2039, 40, 1410, 400),
    "a100-pcie-40": (108, 312, 40, 1555, 40, 1410, 250),
    "a100-pcie-80": (108, 312, 80, 1935, 40, 1410, 300),
    "l4": (58, 121, 24, 300, 48, 2040, 72),
    "l40s": (142, 362, 48, 864, None, 2520, 350),
    "rtx-4090": (128, 165, 24, 1008, 72, 2520, 450),
    "h100-sxm": (132, 989, 80, 3350, 50, 1830, 700),
    "h100-pcie": (114, 756, 80, 2000, 50, None, 350),
    "h200": (132, 989, 141, 4800, 60, 1980, 700),
    "h20": (78, 148, 96, 4000, None, None, 400),
    "b200": (148, 2250, 180, 8000, 126, 1965, 1000),
    "gb200": (152, 2500, 186, 8000, 126, 2062, 1200),
    "mi250x": (110, 191.5, 64, 1638.5, 8, 1700, None),
    "mi300x": (304, 1307, 192, 5300, 32, 2100, 750),
    "mi325x": (304, 1307, 256, 6000, 32, 2100, 1000),
    "mi355x": (256, 2517, 288, 8000, 32, 2400, 1400),
}
DEVICES = [
    ("NVIDIA A100-SXM4-80GB", 79 * GIB, "a100-sxm-80"),
    ("NVIDIA A100-SXM4-40GB", 39 * GIB, "a100-sxm-40"),
    ("A100-SXM4-40GB", None, "a100-sxm-40"),
    ("NVIDIA A100 80GB PCIe", None, "a100-pcie-80"),
    ("NVIDIA A100-PCIE-40GB", None, "a100-pcie-40"),
    ("NVIDIA H100 80GB HBM3", 79 * GIB, "h100-sxm"),
    ("NVIDIA H100 PCIe", None, "h100-pcie"),
    ("NVIDIA H200", 140 * GIB, "h200"),
    ("NVIDIA H20", 95 * GIB, "h20"),
    ("NVIDIA B200", None, "b200"),
    ("NVIDIA GB200", None, "gb200"),
    ("NVIDIA L4", None, "l4"),
    ("NVIDIA L40S", None, "l40s"),
    ("NVIDIA GeForce RTX 4090", 24 * GIB, "rtx-4090"),
    ("Tesla V100-SXM2-16GB", 16 * GIB, "v100-sxm2-16"),
    ("Tesla V100-SXM2-32GB", 32 * GIB, "v100-sxm2-32"),
    ("AMD Instinct MI250X", 64 * GIB, "mi250x"),
    ("AMD Instinct MI300X", 192 * GIB, "mi300x"),
    ("AMD Instinct MI325X", None, "mi325x"),
    ("AMD Instinct MI355X", None, "mi355x"),
]


LINKS = {  # GB/s to the other GPUs of a node, one direction
    "v100": 150,
    "a100-sxm-80": 300,
    "a100-pcie-80": 32,
    "l40s": 32,
    "h100-sxm": 450,
    "h100-pcie": 64,
    "h200": 450,
    "b200": 900,
    "mi250x": None,
    "mi300x": 448,
}


@pytest.mark.parametrize(("name", "gb_s"), LINKS.items())
def test_links_are_half_of_what_data_sheets_give_for_both_directions(name: str, gb_s: float | None) -> None:
    assert {spec.intra_node_gb_s for spec in family_or_key(name)} == {gb_s}


def test_the_catalogue_holds_the_published_facts() -> None:
    found = {
        key: (s.sm_count, s.peak_tflops["fp16"], s.memory_gb, s.bandwidth_gb_s, s.l2_mb, s.boost_mhz, s.power_w)
        for key, s in load().items()
    }
    assert found == FACTS


@pytest.mark.parametrize("spec", load().values(), ids=list(load()))
def test_an_entry_is_complete_and_has_its_sources(spec: GpuSpec) -> None:
    assert spec.sources
    assert spec.vendor in ("nvidia", "amd")
    assert set(spec.peak_tflops) == {"fp16", "bf16", "tf32", "fp32", "fp8", "int8"}
    assert all(re.compile(pattern) for pattern in spec.names)
    peak = spec.peak_tflops["bf16"]
    assert spec.best_bf16_tflops is None or (peak is not None and spec.best_bf16_tflops < peak)


INT8 = {  # dense TOP/s; what no data sheet at hand tells is not there
    "a100-sxm-40": 624,
    "a100-sxm-80": 624,
    "a100-pcie-40": 624,
    "a100-pcie-80": 624,
    "h100-sxm": 1979,
    "h100-pcie": 1513,
    "h200": 1979,
    "l40s": 733,
    "l4": 242,
    "mi300x": 2615,
}


def test_a_v100_has_no_bf16() -> None:
    assert all(spec.peak_tflops["bf16"] is None for spec in family_or_key("v100"))


def test_int8_is_known_where_a_data_sheet_tells() -> None:
    assert {key: spec.peak("int8") for key, spec in load().items() if spec.peak("int8") is not None} == INT8


def test_both_kinds_of_scales_have_the_peak_of_fp8() -> None:
    (h200,) = family_or_key("h200")
    assert (h200.peak("fp8"), h200.peak("fp8_rowwise"), h200.peak("fp16")) == (1979, 1979, 989)
    assert [spec.peak("fp8_rowwise") for spec in family_or_key("a100")] == [None] * 4
    assert h200.peak("fp4") is None


def test_every_dtype_of_a_sweep_has_an_answer() -> None:
    for spec in load().values():
        assert all((peak := spec.peak(dtype)) is None or peak > 0 for dtype in ELEMENT_BYTES)


@pytest.mark.parametrize(("name", "memory", "key"), DEVICES)
def test_a_device_is_known_by_its_own_name(name: str, memory: int | None, key: str) -> None:
    spec = match(name, memory)
    assert spec is not None
    assert spec.key == key


@pytest.mark.parametrize(("name", "_memory", "key"), DEVICES)
def test_a_name_belongs_to_one_entry(name: str, _memory: int | None, key: str) -> None:
    assert [spec.key for spec in load().values() if spec.is_name(name)] == [key]


@pytest.mark.parametrize(
    "name", ["NVIDIA H200 NVL", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA GeForce GTX 1080", "", "H2000"]
)
def test_an_unknown_device_matches_nothing(name: str) -> None:
    assert match(name) is None


def test_a_slice_of_a_device_is_not_the_device() -> None:
    assert match("NVIDIA H200", 16 * GIB) is None
    assert match("AMD Instinct MI300X", 24 * GIB) is None


def test_a_family_names_all_of_its_models_and_a_key_one() -> None:
    assert [spec.key for spec in family_or_key("a100")] == [
        "a100-pcie-40",
        "a100-pcie-80",
        "a100-sxm-40",
        "a100-sxm-80",
    ]
    assert [spec.key for spec in family_or_key("h100-sxm")] == ["h100-sxm"]
    assert {"a100", "h100", "h200", "b200", "l40s", "v100", "mi300x"} <= set(names())


def test_an_unknown_gpu_gets_the_nearest_names() -> None:
    with pytest.raises(InvalidValueError, match="unknown GPU 'a10'; did you mean a100"):
        family_or_key("a10")
