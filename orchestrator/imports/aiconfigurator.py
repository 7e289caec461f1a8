"""aiconfigurator's measured matrix products: ``…/data/<system>/gemm/<framework>/<version>/gemm_perf.parquet``.

Columns: framework, version, device, gemm_dtype (strings), m (tokens), n (output features), k (reduction), latency in
milliseconds. NVIDIA publishes them under Apache-2.0.
"""

from pathlib import Path
from typing import Any

from orchestrator.catalogue import load
from orchestrator.errors import StoreError, shorten
from orchestrator.imports.table import RawRow, RawTable

FILE = "gemm_perf.parquet"
SUFFIX = ".parquet"
COLUMNS = ("device", "gemm_dtype", "m", "n", "k", "latency")
VERSIONS = ("framework", "version")
DTYPES = (("bfloat16", "bf16"), ("fp8", "fp8"))
"""It has no name for fp16; fp8_block, int8_wo, int4_wo and nvfp4 are none of this project's."""


def read(path: Path) -> RawTable:
    """Read one file; StoreError where it is none of these."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        present = set(file.schema_arrow.names)
        if missing := [name for name in COLUMNS if name not in present]:
            raise StoreError(f"{path} is no {FILE} of aiconfigurator: it has no column {', '.join(missing)}")
        table = file.read(columns=[*COLUMNS, *(name for name in VERSIONS if name in present)])
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    rows = table.to_pylist()
    return RawTable(
        path=path,
        source=f"aiconfigurator {_versions(rows)}".rstrip(),
        folder=_folder(path),
        dtypes=DTYPES,
        rows=tuple(_row(number, row) for number, row in enumerate(rows, 1)),
    )


def _row(number: int, row: dict[str, Any]) -> RawRow:
    milliseconds = row["latency"]
    return RawRow(
        number=number,
        m=_whole(row["m"]),
        n=_whole(row["n"]),
        k=_whole(row["k"]),
        seconds=milliseconds / 1e3 if isinstance(milliseconds, int | float) else None,
        dtype=None if row["gemm_dtype"] is None else shorten(str(row["gemm_dtype"])),
        device=None if row["device"] is None else shorten(str(row["device"])),
    )


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value == value // 1 else None


def _versions(rows: list[dict[str, Any]]) -> str:
    """Every framework with its version, as often as not one."""
    found = dict.fromkeys(
        " ".join(str(row.get(name)) for name in VERSIONS if row.get(name) is not None) for row in rows
    )
    return ", ".join(shorten(name) for name in found if name)


def _folder(path: Path) -> str | None:
    """The GPU that ``data/<system>/gemm/…`` says: ``h100_sxm`` is of the family h100."""
    parts = path.resolve().parts
    at = next((i for i in range(len(parts) - 1, 1, -1) if parts[i] == "gemm" and parts[i - 2] == "data"), None)
    if at is None:
        return None
    name = parts[at - 1].lower().split("_")[0]
    return name if name in {spec.family for spec in load().values()} else None
