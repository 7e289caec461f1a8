"""Which devices are not what their model is, and since when: a verdict from the readings of their canaries.

Logs of seconds are compared within a model. What all its devices do alike (a first canary on a cool chip) is taken out
first: the median over the devices, of two the smaller, of how far each is from its own quickest quarter. Then a reading
is bad that

- belongs to a device whose median over time is off the model's by more than ``max(3 MAD, 3%)``, and is itself more than
  half of that off; or
- is more than ``max(3 MAD, 3%)`` slower than its own device was in its quickest quarter, and slower than its model by
  at least half the limit: a device that became slow.

MAD is scaled to the standard deviation of a normal distribution (x 1.4826, as in Leys et al. 2013, «Detecting
outliers»), once between devices and once between neighbouring readings of one. In a large fleet 3 of them are
exceeded by chance: the factor grows with how many are tested (Bonferroni), so that a healthy fleet of any size has a
false alarm in about one case of a hundred; with 64 devices it is 3.9. The floor is a fixed figure: where the devices of
a model have a standard deviation of 1%, so that it is 3 of these, some 2% of healthy fleets have a false alarm.

Few devices. Of one there is nobody to compare with: it is never bad. Two or three have no MAD worth the name, and a
median of two that either can spoil: the faster of two (the middle one of three) stands for the model, only slower ones
are bad, and since a difference of two devices spreads wider than one device both limits are at least 3% x sqrt(2) =
4.2%, or 3 MAD of the readings. Limits: a device that is slow in more than three quarters of its readings is judged as
a whole; a model most of whose devices are slow makes these the norm; a small fleet that differs by much more than 1%
gives false alarms, for a MAD of four is a poor one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from orchestrator.canary import Reading

FLOOR = float(np.log1p(0.03))
MADS = 3.0
FALSE_ALARMS = 0.01
"""Healthy fleets with a false alarm."""
TO_SIGMA = 1.4826
FEW = 4
"""From so many devices on there is a MAD between them."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """bad: numbers of the bad canaries per uuid. reasons: the same in words, a line per device."""

    bad: Mapping[str, frozenset[int]] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def bad_devices(self) -> dict[str, str]:
        """Return uuid -> how much slower the device was than what, and in which canaries."""
        return dict(self.reasons)

    def suspect(self, uuid: str, canary: int | None) -> bool:
        """Whether what ``uuid`` measured after its ``canary``-th canary is suspect: that or the next one was bad.

        canary None: the sweep had no canaries, and nothing is known.
        """
        return canary is not None and not self.bad.get(uuid, frozenset()).isdisjoint((canary, canary + 1))


def judge(readings: Iterable[Reading]) -> Verdict:
    """Judge all readings, each model for itself: a caller that has new ones of one model may give these alone.

    The same readings in any order give the same verdict. A model of 256 devices with 10 readings each takes about 3 ms.
    """
    models: dict[str, dict[str, dict[int, float]]] = {}
    for reading in readings:
        models.setdefault(reading.model, {}).setdefault(reading.uuid, {})[reading.number] = reading.seconds
    bad: dict[str, frozenset[int]] = {}
    reasons: dict[str, str] = {}
    for model, devices in sorted(models.items()):
        uuids = sorted(devices)
        found = _judge(_matrix([devices[uuid] for uuid in uuids]))
        for i in np.flatnonzero(found.bad.any(axis=1)).tolist():
            bad[uuids[i]] = frozenset((np.flatnonzero(found.bad[i]) + 1).tolist())
            reasons[uuids[i]] = _reason(model, len(uuids), found.off[i], found.bad[i])
    return Verdict(bad=bad, reasons=reasons)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """off[devices, numbers]: log seconds over the model's, NaN without a reading. bad: which of them are bad."""

    off: Floats
    bad: NDArray[np.bool_]


def centre(values: Floats) -> Floats:
    """What stands for a model, over the first axis: the median, of two devices the smaller; NaN is skipped."""
    return _middle(values, FEW)


def _middle(values: Floats, few: int = 0) -> Floats:
    """Median over the first axis, skipping NaN: NaN of none. Of fewer than ``few`` the lower of the middle ones."""
    ordered: Floats = np.sort(values, axis=0)  # NaN last
    count = np.isfinite(values).sum(axis=0)
    low = np.maximum(count - 1, 0) // 2
    high = np.where(count < few, low, np.minimum(count // 2, len(values) - 1))
    return np.add(_pick(ordered, low), _pick(ordered, high)) / 2


def _pick(ordered: Floats, index: NDArray[np.int64]) -> Floats:
    picked: Floats = np.take_along_axis(ordered, np.asarray(index)[None], axis=0)[0]
    return picked


def _matrix(devices: Sequence[Mapping[int, float]]) -> Floats:
    seconds = np.full((len(devices), max(max(device) for device in devices)), np.nan)
    for i, device in enumerate(devices):
        seconds[i, np.array(list(device)) - 1] = list(device.values())
    log: Floats = np.log(seconds)
    return log


def _judge(log: Floats) -> _Found:
    devices, noise = len(log), _noise(log)
    step = log - _quickest_quarter(log)[:, None]
    shared = _shared(_held(step))
    log, step = log - shared, step - shared
    level = _middle(log.T)
    model = float(centre(level))
    off = log - model
    few = devices < FEW
    wider = np.sqrt(2)
    floor = wider * FLOOR if few else FLOOR
    if few:
        limit = max(floor, wider * _factor(devices) * noise)
    else:
        limit = max(floor, _factor(devices) * TO_SIGMA * float(np.median(np.abs(level - model))))
    fall = max(floor, wider * _factor(int(np.isfinite(log).sum())) * noise)
    apart = level - model if few else np.abs(level - model)
    side = np.sign(level - model)[:, None]
    with np.errstate(invalid="ignore"):
        whole = (apart > limit)[:, None] & (side * off > limit / 2)
        fallen = (step > fall) & (off > limit / 2)
    return _Found(off=off, bad=(whole | fallen) if devices > 1 else np.zeros(log.shape, dtype=bool))


def _quickest_quarter(log: Floats) -> Floats:
    """The first quartile of each device's readings, as one of them: slow ones may be three quarters of all."""
    ordered, count = np.sort(log, axis=1), np.isfinite(log).sum(axis=1)
    return _pick(ordered.T, (count - 1) // 4)


def _shared(step: Floats) -> Floats:
    """What all devices do alike at each number: their median, of two what the calmer one does."""
    if len(step) != 2:
        return centre(step)
    calmer: Floats = np.take_along_axis(step, np.abs(step).argmin(axis=0)[None], axis=0)[0]
    return calmer


def _held(values: Floats) -> Floats:
    """Fill each device's gaps, and its end, with the reading before: all devices take part in every number."""
    finite = np.isfinite(values)
    index = np.maximum.accumulate(np.where(finite, np.arange(values.shape[1]), 0), axis=1)
    return np.take_along_axis(values, np.maximum(index, finite.argmax(axis=1)[:, None]), axis=1)


def _noise(values: Floats) -> float:
    """Standard deviation of a reading, from neighbours in time, where a step counts once; that of a typical device."""
    if values.shape[1] < 2:
        return 0.0
    typical = float(centre(_middle(np.abs(np.diff(values, axis=1)).T)))
    return typical * TO_SIGMA / np.sqrt(2) if np.isfinite(typical) else 0.0


def _factor(tests: int) -> float:
    """How many standard deviations none of so many healthy ones exceeds, but for FALSE_ALARMS / 2; MADS at least."""
    return max(MADS, NormalDist().inv_cdf(1 - FALSE_ALARMS / 4 / tests))


def _reason(model: str, devices: int, off: Floats, bad: NDArray[np.bool_]) -> str:
    """Say by how much, against what and in which canaries."""
    percent = float(np.expm1(np.median(off[bad]))) * 100
    reference = {2: "the other device", 3: "the middle one of three"}.get(devices, f"the median of {devices}")
    numbers = _ranges((np.flatnonzero(bad) + 1).tolist())
    noun = "canaries" if int(bad.sum()) > 1 else "canary"
    way = "longer" if percent > 0 else "less time"
    last = int(np.flatnonzero(np.isfinite(off))[-1]) + 1
    return f"took {abs(percent):.1f}% {way} than {reference} ({model}) in {noun} {numbers} of {last}"


def _ranges(numbers: Sequence[int]) -> str:
    """Join whole numbers, runs shortened.

    >>> _ranges([1, 3, 4, 5, 9])
    '1, 3-5, 9'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
