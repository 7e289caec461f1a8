"""What a published table holds: raw rows as a source finds them, and timings once their defects were set aside."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalogue import GpuSpec
from orchestrator.errors import shorten
from tasks.gemm import Gemm, kind_of


@dataclass(frozen=True, kw_only=True, slots=True)
class RawRow:
    """One timing as the file has it; None where it has no such value, or one that is no number.

    number: of the row in the file, 1 is the first below the header. dtype: the file's own name for it. device: the GPU
    that the row names. role: what the operator is to this project.
    """

    number: int
    m: int | None
    n: int | None
    k: int | None
    seconds: float | None
    dtype: str | None
    device: str | None = None
    role: str | None = None

    @property
    def shape(self) -> str:
        """The dimensions, as a reader finds them again."""
        sizes = (f"{name}={shorten(str(size))}" for name, size in zip("mnk", (self.m, self.n, self.k), strict=True))
        return f"{' '.join(sizes)} {self.dtype}"

    def __str__(self) -> str:
        """Return the row as an example of what is wrong with it."""
        time = "no time" if self.seconds is None else f"{self.seconds * 1e6:.3g} us"
        return f"row {self.number}: {self.shape}, {time}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RawTable:
    """A file as its source reads it.

    source: who published it, with the versions that the file names. folder: the GPU that the file's place says, a key
    or family of the catalogue. dtypes: this project's name for each of the file's that it has one for.
    """

    path: Path
    source: str
    folder: str | None
    dtypes: tuple[tuple[str, str], ...]
    rows: tuple[RawRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Defect:
    """One kind of defect: how many rows have it, one of them, and whether they are used all the same."""

    kind: str
    count: int
    example: str
    kept: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TimingRow:
    """Seconds of one call of a matrix product; b is 1 in all published tables that are read so far."""

    kind: str
    b: int
    m: int
    n: int
    k: int
    dtype: str
    seconds: float
    role: str | None = None

    @property
    def gemm(self) -> Gemm:
        """The Gemm, in a layout that the table does not tell: FLOPs and bytes do not depend on it."""
        return Gemm(kind=self.kind, b=self.b, m=self.m, n=self.n, k=self.k, dtype=self.dtype)

    @classmethod
    def of(cls, m: int, n: int, k: int, dtype: str, seconds: float, role: str | None = None) -> "TimingRow":
        """Make the row of one product of two matrices."""
        return cls(kind=kind_of(dtype), b=1, m=m, n=n, k=k, dtype=dtype, seconds=seconds, role=role)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimingTable:
    """A published table without its defects.

    gpu: the catalogue's entry. read: rows in the file; each is in ``rows`` or counted in a defect that is not kept.
    """

    path: Path
    source: str
    gpu: GpuSpec
    rows: tuple[TimingRow, ...]
    defects: tuple[Defect, ...]
    read: int
