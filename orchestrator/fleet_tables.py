"""What a person reads of a fleet: per model one line on all devices, and a table with a row for each."""

from collections import Counter
from collections.abc import Iterator, Sequence

from orchestrator.figures import UNKNOWN
from orchestrator.fleet import DeviceSummary, Fleet
from orchestrator.tables import TextTable

FLEET_LEGEND = (
    "canary, time, worst: time over the median of its model's devices (over the faster of two), so + is slower: of its "
    "canaries, of the families that several devices measured, of the slowest of these."
)
LEAST_SHORT = 8
"""Letters of a UUID that are shown at least."""
HOST = 9
"""Letters of a host's name that are shown; the first and the last tell hosts apart."""


def fleet_tables(fleets: Sequence[Fleet], top: int | None = None) -> Iterator[TextTable]:
    """Yield one table per model: the suspect devices and the slowest come first; ``top`` limits the rows."""
    for fleet in fleets:
        yield _fleet_table(fleet, len(fleet.devices) if top is None else top)


def short_uuids(uuids: Sequence[str]) -> dict[str, str]:
    """Cut UUIDs to the same length, as short as tells them apart.

    >>> short_uuids(["GPU-8f14e45f-ceea-467f", "GPU-8f14e45f-0000-467f"])
    {'GPU-8f14e45f-ceea-467f': '8f14e45f-c', 'GPU-8f14e45f-0000-467f': '8f14e45f-0'}
    """
    bare = {uuid: uuid.removeprefix("GPU-") for uuid in uuids}
    longest = max(map(len, bare.values()), default=0)
    distinct = len(set(bare.values()))
    lengths = (n for n in range(LEAST_SHORT, longest) if len({text[:n] for text in bare.values()}) == distinct)
    length = next(lengths, longest)
    return {uuid: text[:length] for uuid, text in bare.items()}


def _fleet_table(fleet: Fleet, top: int) -> TextTable:
    short = short_uuids([device.uuid for device in fleet.devices])
    shown = fleet.devices[:top]
    columns = {
        "device": [short[device.uuid] for device in shown],
        "host": [_host(device.host) for device in shown],
        "state": [_state(device) for device in shown],
        "families": [str(device.families) for device in shown],
        "canary": [_percent(device.canary) for device in shown],
        "time": [_percent(device.time) for device in shown],
        "worst": [_percent(device.worst) for device in shown],
        "MHz": [_number(device.sm_clock_mean_mhz) for device in shown],
        "°C": [_number(device.temperature_max_c) for device in shown],
        "W": [_number(device.power_mean_w) for device in shown],
    }
    # What is known of no device is no column; one host is in the title.
    optional = {name for name in ("canary", "time", "worst", "MHz", "°C", "W") if set(columns[name]) == {UNKNOWN}}
    one_host = len({device.host for device in fleet.devices}) == 1
    kept = {
        name: cells for name, cells in columns.items() if name not in optional and not (one_host and name == "host")
    }
    hidden = len(fleet.devices) - len(shown)
    return TextTable(
        title=_title(fleet, one_host=one_host),
        columns=tuple(kept),
        rows=tuple(zip(*kept.values(), strict=True)),
        notes=(*_summary(fleet, short), *([f"{hidden} more devices are in ranking.md"] if hidden else [])),
    )


def _title(fleet: Fleet, *, one_host: bool) -> str:
    count = len(fleet.devices)
    place = f" on {fleet.devices[0].host}" if one_host and fleet.devices[0].host else ""
    return f"{fleet.gpu}: {count} device{'' if count == 1 else 's'}{place}"


def _summary(fleet: Fleet, short: dict[str, str]) -> Iterator[str]:
    """How the devices of the model differ, which is the slowest, and in what state they are."""
    spread, slowest = fleet.spread, fleet.slowest
    if spread is not None and slowest is not None:
        where = f" on {slowest.host}" if slowest.host else ""
        worst = f", at worst {_percent(slowest.worst)} in {slowest.worst_family}" if slowest.worst_family else ""
        yield (
            f"spread p10..p90 {_percent(spread[0])}..{_percent(spread[1])}; slowest: {short[slowest.uuid]}{where}, "
            f"{_percent(slowest.against_model)}{worst}"
        )
    states = Counter(_state(device) for device in fleet.devices)
    bad = ", ".join(f"{states[state]} {state}" for state in ("suspect", "throttled") if states[state])
    if bad:
        yield bad


def _state(device: DeviceSummary) -> str:
    """The most serious of what there is to say; a power cap is normal for GEMMs."""
    if device.reason:
        return "suspect"
    if device.throttled:
        return "throttled"
    return "capped" if device.power_limited else "ok"


def _host(name: str) -> str:
    half = HOST // 2
    return name if len(name) <= HOST else f"{name[:half]}…{name[-half:]}"


def _percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio * 100:+.1f}%"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"
