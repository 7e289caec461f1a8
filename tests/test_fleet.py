"""The devices of a run beside one another: what is known of each, who is slow, and how that reads."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.fleet import DeviceSummary, Fleet
from orchestrator.fleet_tables import fleet_tables, short_uuids
from orchestrator.ranking import rank
from orchestrator.store import RunStore
from orchestrator.tables import TextTable
from tests.builders import TELEMETRY, per_flop, up_family
from tests.fleets import Fake, keep, keep_canaries


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, "run", {})


COST = per_flop({})


def device(number: int = 0, **changes: object) -> DeviceSummary:
    summary = DeviceSummary(uuid=f"GPU-{number:08d}-aaaa", host="node1", families=12)
    return replace(summary, **changes)  # type: ignore[arg-type]


def table(*devices: DeviceSummary, top: int | None = None) -> TextTable:
    (found,) = fleet_tables([Fleet(gpu="NVIDIA H200", devices=devices)], top)
    return found


# From Shards


def test_a_run_on_one_device_has_no_fleet(store: RunStore) -> None:
    one = Fake(uuid="GPU-0", canaries=[1.0, 1.0])
    keep_canaries(store, one)
    keep(store, one, up_family([128]), COST, canary=1)
    assert rank(store).fleets == ()


def test_replicated_families_tell_how_fast_each_device_is_and_where_it_is_slowest(store: RunStore) -> None:
    families = [up_family([128, 256], tp=tp) for tp in (1, 2, 4)]
    # Seconds over the middle device's, by device and Family.
    slower = {"GPU-0": (0.98, 0.99, 1.00), "GPU-1": (1.0, 1.0, 1.0), "GPU-2": (1.01, 1.02, 1.30)}
    for uuid, factors in slower.items():
        for family, factor in zip(families, factors, strict=True):
            keep(store, Fake(uuid=uuid), family, COST, slower=factor)
    (fleet,) = rank(store).fleets
    assert (fleet.gpu, [device.uuid for device in fleet.devices]) == ("NVIDIA H200", ["GPU-2", "GPU-1", "GPU-0"])
    slow, middle, fast = fleet.devices
    assert (slow.time, slow.worst) == pytest.approx((0.02, 0.30))
    assert slow.worst_family == families[2].family_id
    assert (middle.time, fast.time) == pytest.approx((0.0, -0.01))
    assert (slow.families, slow.canary, slow.host) == (3, None, "node1")
    assert fleet.slowest == slow
    assert fleet.spread == pytest.approx((-0.008, 0.016))  # of -1%, 0 and 2%, linear between


def test_of_two_the_faster_is_the_norm(store: RunStore) -> None:
    for uuid, factor in (("GPU-0", 1.25), ("GPU-1", 1.0)):
        keep(store, Fake(uuid=uuid), up_family([128]), COST, slower=factor)
    (fleet,) = rank(store).fleets
    assert [device.uuid for device in fleet.devices] == ["GPU-0", "GPU-1"]
    assert [device.time for device in fleet.devices] == pytest.approx([0.25, 0.0])


def test_where_families_are_split_canaries_compare_the_devices(store: RunStore) -> None:
    devices = [Fake(uuid=f"GPU-{i}", canaries=[slower, slower, 3.0]) for i, slower in enumerate((1.0, 1.01, 0.99))]
    keep_canaries(store, *devices)
    for item, tp in zip(devices, (1, 2, 4), strict=True):
        keep(store, item, up_family([128], tp=tp), COST, canary=1)
    (fleet,) = rank(store).fleets
    found = [(device.uuid, device.time, device.families) for device in fleet.devices]
    assert found == [("GPU-1", None, 1), ("GPU-0", None, 1), ("GPU-2", None, 1)]
    assert [device.canary for device in fleet.devices] == pytest.approx([0.01, 0.0, -0.01])
    assert fleet.slowest == fleet.devices[0]


def test_models_are_fleets_of_their_own(store: RunStore) -> None:
    a100 = Fake(uuid="GPU-9", gpu="NVIDIA A100-SXM4-80GB", canaries=[2.0])
    keep_canaries(store, Fake(uuid="GPU-0", canaries=[1.0]), Fake(uuid="GPU-1", canaries=[1.0]), a100)
    for item, slower in ((Fake(uuid="GPU-0"), 1.0), (a100, 2.0)):
        keep(store, item, up_family([128]), COST, slower=slower)
    fleets = rank(store).fleets
    assert [(fleet.gpu, len(fleet.devices)) for fleet in fleets] == [("NVIDIA A100-SXM4-80GB", 1), ("NVIDIA H200", 2)]
    (alone,) = fleets[0].devices
    assert (alone.canary, alone.time, fleets[0].slowest, fleets[0].spread) == (None, None, None, None)


def test_a_suspect_device_comes_first_and_its_shards_are_part_of_the_table(store: RunStore) -> None:
    sound, slow = Fake(uuid="GPU-0", canaries=[1.0] * 2), Fake(uuid="GPU-1", canaries=[1.2] * 2)
    keep_canaries(store, sound, slow)
    for item, slower in ((sound, 1.0), (slow, 1.2)):
        keep(store, item, up_family([128]), COST, slower=slower, canary=1)
    (fleet,) = rank(store).fleets
    first, second = fleet.devices
    assert (first.uuid, first.families) == ("GPU-1", 1)
    assert (first.time, first.canary) == pytest.approx((0.2, 0.2))
    assert "20.0% longer than the other device" in first.reason
    assert (second.uuid, second.reason) == ("GPU-0", "")


def test_what_a_device_did_is_summed_up_over_its_shards(store: RunStore) -> None:
    hot = replace(TELEMETRY, sm_clock_mean_mhz=1450.0, temperature_max_c=85.0, power_mean_w=None, throttled=True)
    keep(store, Fake(uuid="GPU-0"), up_family([128]), COST)
    keep(store, Fake(uuid="GPU-0"), up_family([128], tp=2), COST, telemetry=hot)
    keep(store, Fake(uuid="GPU-1"), up_family([128]), COST, telemetry=replace(TELEMETRY, power_limited=False))
    (fleet,) = rank(store).fleets
    first, second = sorted(fleet.devices, key=lambda device: device.uuid)
    assert (first.sm_clock_mean_mhz, first.temperature_max_c, first.power_mean_w) == (1550.0, 85.0, 690.0)
    assert (first.throttled, first.power_limited, second.throttled, second.power_limited) == (True, True, False, False)


def test_a_gemm_that_left_the_rounds_on_one_device_is_not_compared(store: RunStore) -> None:
    family = up_family([128, 256])
    failed = {family.gemms[1].gemm_id: ("oom", "too large")}
    keep(store, Fake(uuid="GPU-0"), family, COST)
    keep(store, Fake(uuid="GPU-1"), family, COST, slower=1.1, status=failed)
    (fleet,) = rank(store).fleets
    assert [device.time for device in fleet.devices] == pytest.approx([0.1, 0.0])


# For reading


def test_every_known_column_has_a_cell() -> None:
    known = {
        "canary": 0.02,
        "time": -0.004,
        "worst": 0.3,
        "worst_family": "mlp-h64",
        "sm_clock_mean_mhz": 1650.4,
        "temperature_max_c": 61.0,
        "power_mean_w": 690.2,
    }
    found = table(device(0, **known, host="a"), device(1, reason="slow", throttled=True, host="a-very-long-name-17"))
    assert found.columns == ("device", "host", "state", "families", "canary", "time", "worst", "MHz", "°C", "W")
    assert found.rows == (
        ("00000000", "a", "ok", "12", "+2.0%", "-0.4%", "+30.0%", "1650", "61", "690"),
        ("00000001", "a-ve…e-17", "suspect", "12", "-", "-", "-", "-", "-", "-"),
    )


def test_what_is_known_of_no_device_is_no_column_and_one_host_is_in_the_title() -> None:
    found = table(device(0), device(1))
    assert found.columns == ("device", "state", "families")
    assert found.title == "NVIDIA H200: 2 devices on node1"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "ok"),
        ({"power_limited": True}, "capped"),
        ({"power_limited": True, "throttled": True}, "throttled"),
        ({"throttled": True, "reason": "slow"}, "suspect"),
    ],
)
def test_the_state_is_the_most_serious_of_what_there_is_to_say(changes: dict[str, object], state: str) -> None:
    assert table(device(0, **changes)).rows[0][1] == state


def test_the_summary_says_how_the_devices_differ_and_names_the_slowest() -> None:
    devices = [device(i, canary=i / 100) for i in range(11)]
    devices[10] = replace(devices[10], time=0.12, worst=0.3, worst_family="mlp-h64", reason="slow")
    assert table(*devices).notes == (
        "spread p10..p90 +1.0%..+9.0%; slowest: 00000010 on node1, +12.0%, at worst +30.0% in mlp-h64",
        "1 suspect",
    )


def test_a_large_fleet_is_cut_and_says_so() -> None:
    found = table(*(device(i) for i in range(64)), top=20)
    assert (len(found.rows), found.notes) == (20, ("44 more devices are in ranking.md",))
    assert len(table(*(device(i) for i in range(64))).rows) == 64


def test_uuids_are_as_short_as_tells_them_apart() -> None:
    assert short_uuids(["GPU-8f14e45f-ceea", "GPU-9f14e45f-ceea"]) == {
        "GPU-8f14e45f-ceea": "8f14e45f",
        "GPU-9f14e45f-ceea": "9f14e45f",
    }
    assert set(short_uuids(["GPU-8f14e45f-ceea", "GPU-8f14e45f-ceeb"]).values()) == {"8f14e45f-ceea", "8f14e45f-ceeb"}
    assert short_uuids(["CPU-a", "CPU-b"]) == {"CPU-a": "CPU-a", "CPU-b": "CPU-b"}
