"""How long one Gemm of a step takes on a GPU model, and how that is known."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.capacity_grid import Grid
from orchestrator.capacity_work import Work
from orchestrator.compare_side import Shape, Side


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """Seconds of one call; spans: between which measured values it was interpolated, empty where it was measured.

    turned: the figure is that of the transposed product, which has the same FLOPs and bytes. departure: how many times
    a measured one takes what its neighbours give, where that is doubtful.
    """

    work: Work
    seconds: float
    spans: Mapping[str, tuple[int, int]]
    turned: bool = False
    departure: float | None = None

    @property
    def interpolated(self) -> bool:
        """Whether it was not measured itself."""
        return bool(self.spans)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A side with its timings as they are looked up."""

    side: Side
    grid: Grid

    @classmethod
    def of(cls, side: Side) -> "Source":
        """Make the source of a side."""
        return cls(side=side, grid=Grid({shape: timing.seconds for shape, timing in side.timings.items()}))

    def shapes(self, work: Work) -> tuple[Shape, ...]:
        """What a work may be found as: a table tells no layout, so a weight's gradient is there either way round."""
        gemm = work.gemm
        layout = None if self.side.imported else gemm.layout
        own = Shape(gemm.kind, gemm.b, gemm.m, gemm.n, gemm.k, gemm.dtype, layout)
        turned = own._replace(m=gemm.n, n=gemm.m)
        return (own, turned) if self.side.imported and work.weight_gradient and turned != own else (own,)

    def figure(self, work: Work) -> Figure | None:
        """Look a work up: measured, else between measured neighbours; None where it is neither."""
        shapes = self.shapes(work)
        for shape in shapes:
            if shape in self.grid.seconds:
                return Figure(
                    work=work,
                    seconds=self.grid.seconds[shape],
                    spans={},
                    turned=shape != shapes[0],
                    departure=self.grid.departure(shape),
                )
        for shape in shapes:
            found = self.grid.estimate(shape)
            if found is not None:
                return Figure(work=work, seconds=found.seconds, spans=found.spans, turned=shape != shapes[0])
        return None
