"""What a step of a model costs on each GPU model that was measured, in GEMM time, and what follows from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from orchestrator.capacity_arguments import Asked
from orchestrator.capacity_figure import Figure, Source
from orchestrator.capacity_gap import Gap, gap, message
from orchestrator.capacity_grid import Error
from orchestrator.capacity_layout import Layout
from orchestrator.capacity_links import all_reduce_seconds, all_reduces, link_gb_s
from orchestrator.capacity_target import Needed, needed
from orchestrator.capacity_work import Block, blocks
from orchestrator.compare_side import Side
from orchestrator.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockTime:
    """A block with a figure for each of its works that count."""

    block: Block
    figures: tuple[Figure, ...]

    @property
    def seconds(self) -> float:
        """GEMM seconds of one pass through it."""
        return sum(figure.seconds for figure in self.figures)

    @property
    def flops(self) -> int:
        """FLOPs of one pass through it, on one rank."""
        return sum(figure.work.gemm.flops for figure in self.figures)


@dataclass(frozen=True, kw_only=True)
class SideCapacity:
    """One GPU model.

    errors: of each way of interpolation that was used, of all shapes and of those near its m. link_gb_s: None where
    neither given nor in the catalogue. price: None where not given. needed: for the target, None without one.
    """

    side: Side
    layout: Layout
    blocks: tuple[BlockTime, ...]
    errors: tuple[Error, ...]
    link_gb_s: float | None
    price: float | None
    needed: Needed | None = None

    @cached_property
    def step_s(self) -> float:
        """GEMM seconds of a step: of one rank of every stage, one after the other."""
        return sum(each.block.times * each.seconds for each in self.blocks)

    @cached_property
    def stage_s(self) -> float:
        """GEMM seconds of the slowest pipeline stage; the last one has the output layer too."""
        return self._slowest(0.0)

    @property
    def tflops(self) -> float:
        """Of one GPU, while its Gemms run."""
        return sum(each.block.times * each.flops for each in self.blocks) / self.step_s / 1e12

    @property
    def peak_share(self) -> float | None:
        """Share of the catalogue's dense peak, None where it has none."""
        peak = None if self.side.spec is None else self.side.spec.peak(self.layout.dtype)
        return None if peak is None else self.tflops / peak

    @property
    def tokens_per_gpu_s(self) -> float:
        """Tokens per second and GPU, if there were nothing but Gemms: all stages work at once."""
        return self.layout.tokens / self.stage_s / self.layout.replica_gpus

    @property
    def all_reduce_s(self) -> float | None:
        """Estimated seconds of a layer's all-reduces; None where no bandwidth is known."""
        if self.layout.tp == 1:
            return 0.0
        if self.link_gb_s is None:
            return None
        return all_reduces(self.layout) * all_reduce_seconds(self.layout, self.link_gb_s)

    @property
    def exposed_tokens_per_gpu_s(self) -> float | None:
        """As ``tokens_per_gpu_s``, if in addition nothing hid the estimated all-reduces."""
        if self.all_reduce_s is None:
            return None
        return self.layout.tokens / self._slowest(self.all_reduce_s) / self.layout.replica_gpus

    def _slowest(self, more: float) -> float:
        """The slowest stage, with ``more`` seconds in every layer."""
        layers = iter([each.seconds + more for each in self.blocks[:-1] for _ in range(each.block.times)])
        stages = [sum(islice(layers, count)) for count in self.layout.stage_layers]
        stages[-1] += self.blocks[-1].seconds
        return max(stages)


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """The sides, in the order given. left_out: attention's products that not every side has, and why."""

    asked: Asked
    sides: tuple[SideCapacity, ...]
    left_out: tuple[Gap, ...]


def capacity(asked: Asked, sides: Sequence[Side]) -> Capacity:
    """Plan on every side.

    Raises:
        InvalidValueError: the weights alone do not fit a GPU, or a Gemm was neither measured nor lies between measured
            ones; the message has the sweep that would measure it.
    """
    _check_memory(asked.layout, sides)
    sources = [Source.of(side) for side in sides]
    work = blocks(asked.layout)
    gaps = [
        gap(source, each) for source in sources for block in work for each in block.works if source.figure(each) is None
    ]
    if required := [each for each in gaps if not each.work.optional]:
        raise InvalidValueError(message(required))
    found = tuple(_side(source, asked, work, attention=not gaps) for source in sources)
    return Capacity(asked=asked, sides=found, left_out=tuple(gaps))


def _check_memory(layout: Layout, sides: Sequence[Side]) -> None:
    short = [side for side in sides if side.spec is not None and layout.weight_gb > side.spec.memory_gb]
    if short:
        held = " and ".join(f"{side.gpu} has {side.spec.memory_gb:g}" for side in short if side.spec is not None)
        raise InvalidValueError(
            f"at tp={layout.tp} pp={layout.pp} the weights alone are {layout.weight_gb:.1f} GB a GPU in "
            f"{layout.dtype}, and {held}: raise tp or pp"
        )


def _side(source: Source, asked: Asked, work: Sequence[Block], *, attention: bool) -> SideCapacity:
    times = tuple(BlockTime(block=block, figures=tuple(_figures(source, block, attention))) for block in work)
    found = SideCapacity(
        side=source.side,
        layout=asked.layout,
        blocks=times,
        errors=tuple(_errors(source, times)),
        link_gb_s=link_gb_s(asked.links, source.side.spec),
        price=asked.prices.of(source.side.spec),
    )
    if asked.target is None:
        return found
    need = needed(asked.layout, asked.target, found.tokens_per_gpu_s, found.price)
    return replace(found, needed=need)


def _figures(source: Source, block: Block, attention: bool) -> Iterator[Figure]:
    for work in block.works:
        figure = source.figure(work) if attention or not work.optional else None
        if figure is not None:
            yield figure


def _errors(source: Source, times: Sequence[BlockTime]) -> Iterator[Error]:
    guessed = [each for time in times for each in time.figures if each.interpolated]
    used = {(tuple(each.spans), each.work.gemm.dtype) for each in guessed}
    for axes, dtype in sorted(used):
        rows = {each.work.gemm.m for each in guessed if tuple(each.spans) == axes}
        for near in (None, *sorted(rows)):
            error = source.grid.error(axes, dtype, near)
            if error is not None:
                yield error
