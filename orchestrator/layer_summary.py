"""What was measured of a layer as latencies, shares and rates: pure arithmetic on records."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.component import Component, Layer, Variant
from tasks.interval import Interval, median_interval
from tasks.records import GemmFacts

if TYPE_CHECKING:
    from tasks.layer_timing import Timings

MISSING = GemmFacts(gemm_id="", status="skipped", message="was not measured")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One component of a variant. seconds: of one call, None where it was not measured; times: calls in a layer.

    share: of the variant's latency, of all its calls.
    """

    component: Component
    times: int
    seconds: Interval | None
    share: float | None
    launch: str | None = None
    status: str = "ok"
    message: str = ""

    @property
    def total(self) -> float:
        """Seconds of all calls in a layer; 0 where it was not measured."""
        return self.times * self.seconds.median if self.seconds else 0.0

    @property
    def tflops(self) -> float | None:
        """Rate of its matrix products; None where it has none."""
        if self.seconds is None or not self.component.flops:
            return None
        return self.component.flops / self.seconds.median / 1e12


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantSummary:
    """One way to run the layer. seconds: the sum of its components' medians, without those in ``missing``.

    interval: of the same sum made in each round; None where nothing was measured.
    gemm_share: of the Gemms alone. product_share: with fused attention, whose time is matrix products and softmax in
    one. whole: seconds of the variant run from end to end, None where that was not measured.
    """

    name: str
    rows: tuple[Row, ...]
    interval: Interval | None
    whole: Interval | None
    whole_message: str = ""

    @property
    def seconds(self) -> float:
        """The layer's latency: the sum of what was measured."""
        return sum(row.total for row in self.rows)

    @property
    def missing(self) -> tuple[Row, ...]:
        """Components that the sum lacks."""
        return tuple(row for row in self.rows if row.seconds is None)

    @property
    def gemm_share(self) -> float | None:
        """Share of the Gemms; None where nothing was measured."""
        return self._share("gemm")

    @property
    def product_share(self) -> float | None:
        """Share of the Gemms and of fused attention."""
        return self._share("gemm", "attention")

    @property
    def flops(self) -> int:
        """Floating-point operations of the matrix products that were measured."""
        return sum(row.times * row.component.flops for row in self.rows if row.seconds)

    @property
    def tflops(self) -> float | None:
        """Rate of the whole layer: its matrix products over its latency."""
        return self.flops / self.seconds / 1e12 if self.seconds else None

    @property
    def apart(self) -> float | None:
        """How much longer the sum is than the layer run from end to end, as a share of the latter."""
        return None if self.whole is None or self.missing else self.seconds / self.whole.median - 1

    def _share(self, *kinds: str) -> float | None:
        if not self.seconds:
            return None
        return sum(row.total for row in self.rows if row.component.kind in kinds) / self.seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSummary:
    """A layer's variants, and every backend of fused attention whether a variant took it or not."""

    variants: tuple[VariantSummary, ...]
    attention: tuple[Row, ...]


def summarise(layer: Layer, timings: "Timings", confidence: float = 0.95) -> LayerSummary:
    """Summarise what was measured; of the alternatives of a step the one with the least median is taken."""
    seconds = {key: median_interval(values, confidence) for key, values in timings.samples.items()}
    failures = {facts.gemm_id: facts for facts in timings.failures}
    found = _Measured(seconds=seconds, failures=failures, launches=timings.launches)
    attention = [component for component in layer.components if component.kind == "attention"]
    return LayerSummary(
        variants=tuple(_variant(variant, found, timings, confidence) for variant in layer.variants),
        attention=tuple(found.row(component, 1, None) for component in attention),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measured:
    """Seconds, or why there are none, by a component's key."""

    seconds: Mapping[str, Interval]
    failures: Mapping[str, GemmFacts]
    launches: Mapping[str, str]

    def taken(self, step: Sequence[Component]) -> Component:
        """The fastest alternative; the first where none was measured."""
        there = [component for component in step if component.key in self.seconds]
        return min(there, key=lambda component: self.seconds[component.key].median, default=step[0])

    def row(self, component: Component, times: int, total: float | None) -> Row:
        """A row whose share is of ``total`` seconds."""
        seconds = self.seconds.get(component.key)
        failure = self.failures.get(component.key, MISSING)
        return Row(
            component=component,
            times=times,
            seconds=seconds,
            share=times * seconds.median / total if seconds and total else None,
            launch=self.launches.get(component.key),
            status="ok" if seconds else failure.status,
            message="" if seconds else failure.message,
        )


def _variant(variant: Variant, found: _Measured, timings: "Timings", confidence: float) -> VariantSummary:
    steps = [found.taken(step) for step in variant.steps]
    times = Counter(step.name for step in steps)
    distinct = {step.name: step for step in steps}
    rows = [found.row(step, times[name], None) for name, step in distinct.items()]
    total = sum(row.total for row in rows)
    whole = timings.whole.get(variant.name)
    failure = found.failures.get(f"whole {variant.name}")
    return VariantSummary(
        name=variant.name,
        rows=tuple(found.row(row.component, row.times, total) for row in rows),
        interval=_sums(rows, timings, confidence),
        whole=median_interval(whole, confidence) if whole else None,
        whole_message=failure.message if failure else "",
    )


def _sums(rows: Sequence[Row], timings: "Timings", confidence: float) -> Interval | None:
    """The sum of the rows' calls in each round: what drifts in a round drifts in all of them."""
    there = [(row.times, timings.samples[row.component.key]) for row in rows if row.seconds]
    rounds = zip(*([times * each for each in samples] for times, samples in there), strict=True)
    sums = [sum(values) for values in rounds]
    return median_interval(sums, confidence) if sums else None
