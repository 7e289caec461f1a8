"""The generated tables of docs/configuration.md and docs/formats.md: keys, sweeps, GPUs, models, columns.

Measures nothing. ``python -m benchmarks.references`` writes them again.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path

import pyarrow as pa

from benchmarks.column_texts import PARTS, RANKING, SHARD
from orchestrator import catalogue
from orchestrator.columns import PART_TYPE, RANKING_SCHEMA, SHARD_SCHEMA
from orchestrator.config import compose, conf_names, keys
from orchestrator.model_counts import parameters
from orchestrator.models import load_model, names
from orchestrator.roles import ROLES

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("configuration.md", "formats.md")
PLACE = re.compile(r"(<!-- table ([a-z-]+): begin -->\n).*?(<!-- table \2: end -->)", re.DOTALL)
GPU_FACTS = ("sm_count", "memory_gb", "bandwidth_gb_s", "l2_mb", "power_w", "intra_node_gb_s")
DTYPES = ("fp16", "bf16", "tf32", "fp32", "fp8", "int8")


def updated(page: str) -> str:
    """Return a page with every table that it has a place for as it is now."""
    return PLACE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", page)


def key_table() -> str:
    """Every key of the configuration, its type, default and meaning."""
    return _table(("key", "takes", "default", "what it is"), ((f"`{n}`", t, f"`{d}`", h) for n, t, d, h in keys()))


def conf_table() -> str:
    """The ready-made sweeps: the GPU of each, and what it says of itself."""
    return _table(("conf", "cluster.gpu", "what it is"), map(_sweep, sorted(conf_names())))


def gpu_table() -> str:
    """The catalogue's facts."""
    head = ("key", "family", "SMs", "GB", "GB/s", "L2 MB", "W", "link GB/s", *DTYPES)
    rows = (
        (
            f"`{spec.key}`",
            f"`{spec.family}`",
            *(_number(getattr(spec, name)) for name in GPU_FACTS),
            *(_number(spec.peak(dtype)) for dtype in DTYPES),
        )
        for spec in catalogue.load().values()
    )
    return _table(head, rows)


def model_table() -> str:
    """The ready-made models' dimensions."""
    head = ("model", "h", "layers", "a", "kv", "head_dim", "d_ff", "v", "experts", "parameters")
    return _table(head, map(_model, names()))


def role_table() -> str:
    """The roles, one line each."""
    return _table(("role", "what it is"), ((f"`{name}`", role.help) for name, role in ROLES.items()))


def shard_table() -> str:
    """The columns of a Shard."""
    return _columns(SHARD_SCHEMA, SHARD)


def ranking_table() -> str:
    """The columns of a ranking."""
    return _columns(RANKING_SCHEMA, {**SHARD, **RANKING})


def part_table() -> str:
    """The fields of a ranking's ``parts``."""
    return _columns(pa.schema(list(PART_TYPE)), {**SHARD, **PARTS})


TABLES: Mapping[str, Callable[[], str]] = {
    "keys": key_table,
    "sweeps": conf_table,
    "gpus": gpu_table,
    "models": model_table,
    "roles": role_table,
    "shard": shard_table,
    "ranking": ranking_table,
    "parts": part_table,
}


def _sweep(name: str) -> tuple[str, str, str]:
    comment, _, _ = files("conf").joinpath(f"{name}.yaml").read_text("utf-8").partition("\n")
    return f"`{name}`", f"`{compose(name, []).cluster.gpu}`", comment.removeprefix("#").strip()


def _model(name: str) -> tuple[str, ...]:
    model = load_model(name)
    dimensions = (model.h, model.layers, model.a, model.kv, model.head_dim, model.d_ff, model.v, model.experts)
    return f"`{name}`", *map(_number, dimensions), f"{parameters(model).total / 1e9:.2f} B"


def _columns(schema: pa.Schema, texts: Mapping[str, str]) -> str:
    return _table(("column", "type", "what it is"), ((f"`{f.name}`", _type(f.type), texts[f.name]) for f in schema))


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {_type(kind.value_type)}"
    return "struct" if pa.types.is_struct(kind) else str(kind)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}" if value == int(value) else f"{value:g}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    for page in PAGES:
        path = DOCS / page
        path.write_text(updated(path.read_text("utf-8")), "utf-8")
