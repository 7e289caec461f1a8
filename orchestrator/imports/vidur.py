"""vidur's profiled layers: ``…/<gpu>/<model>/mlp.csv``, a row for each number of tokens and tensor-parallel size.

Milliseconds of one linear layer on one rank; its median is used. From vidur's own code: the model runs in float16
(profiling/mlp/mlp_wrapper.py), the column-parallel layers are n_embd to (heads + 2 kv heads)·head size and to
n_expanded_embd, twice that where the MLP is gated, the row-parallel ones go back to n_embd (profiling/mlp/mlp_impl.py).
Microsoft publishes them under MIT.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.imports.table import RawRow, RawTable

FILE = "mlp.csv"
SUFFIX = ".csv"
DTYPES = (("fp16", "fp16"),)
MODEL = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "num_tokens", "num_tensor_parallel_workers")
GATED = "use_gated_mlp"
OPERATORS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
ROLES = {"attn_pre_proj": "qkv", "attn_post_proj": "attn_out", "mlp_down_proj": "mlp_down"}
COLUMNS = (*MODEL, GATED, *(f"time_stats.{name}.median" for name in OPERATORS))

GPUS = {"a100": "a100-sxm-80", "h100": "h100-sxm"}
"""vidur's folders are of DGX hosts, A100 with 80 GB (its README and config/device_sku_config.py)."""


def read(path: Path) -> RawTable:
    """Read one file; StoreError where it is none of these."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            present = set(reader.fieldnames or ())
            if missing := [name for name in COLUMNS if name not in present]:
                raise StoreError(f"{path} is no {FILE} of vidur: it has no column {', '.join(missing)}")
            rows = [each for number, row in enumerate(reader, 1) for each in _rows(number, row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    return RawTable(
        path=path, source=f"vidur {path.parent.name}", folder=_folder(path), dtypes=DTYPES, rows=tuple(rows)
    )


def _rows(number: int, row: Mapping[str, str]) -> Iterator[RawRow]:
    sizes = [_whole(row[name]) for name in MODEL]
    gated = row[GATED] == "True"
    for operator in OPERATORS:
        time = _number(row[f"time_stats.{operator}.median"])
        m, n, k = _shape(operator, sizes, gated=gated)
        yield RawRow(
            number=number,
            m=m,
            n=n,
            k=k,
            seconds=None if time is None else time / 1e3,
            dtype="fp16",
            role=ROLES.get(operator) or ("mlp_gate_up" if gated else "mlp_up"),
        )


def _shape(operator: str, sizes: list[int | None], *, gated: bool) -> tuple[int | None, int | None, int | None]:
    """m, n and k of one rank's operator; None for a dimension that cannot be told, or that tp does not divide."""
    heads, kv, h, d_ff, tokens, tp = sizes
    if not (heads and kv and h and d_ff and tp):
        return tokens, None, None
    whole = {
        "attn_pre_proj": ((heads + 2 * kv) * (h // heads), h),
        "attn_post_proj": (h, h),
        "mlp_up_proj": (d_ff * (2 if gated else 1), h),
        "mlp_down_proj": (h, d_ff),
    }
    n, k = whole[operator]
    if operator in ("attn_pre_proj", "mlp_up_proj"):
        return tokens, n // tp if n % tp == 0 else None, k
    return tokens, n, k // tp if k % tp == 0 else None


def _whole(text: str | None) -> int | None:
    value = _number(text)
    return int(value) if value is not None and value == value // 1 else None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _folder(path: Path) -> str | None:
    """The GPU of the nearest folder that vidur has named so, or that has a key of the catalogue."""
    from orchestrator.catalogue import load

    names = (part.lower() for part in reversed(path.resolve().parts[:-1]))
    return next((GPUS.get(name, name) for name in names if name in GPUS or name in load()), None)
