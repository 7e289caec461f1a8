"""Which GPU a published table is of: by the user's word, the file's place and what its rows name."""

from collections import Counter

from orchestrator.catalogue import GpuSpec, load, match
from orchestrator.errors import InvalidValueError
from orchestrator.imports.table import RawTable


def gpu_of(table: RawTable) -> GpuSpec:
    """Return the model of most rows, of those of the folder's model or family where it names one.

    Raises:
        InvalidValueError: neither says a model of the catalogue, or they contradict each other.
    """
    named = Counter(row.device for row in table.rows if row.device is not None)
    specs = [(spec, name) for name, _ in named.most_common() if (spec := match(name)) is not None]
    if not named:
        return _by_folder(table)
    if not specs:
        raise InvalidValueError(
            f"{table.path}: its rows name {_quoted(named)}, which the catalogue has not; {_how(table)}"
        )
    fitting = [spec for spec, _ in specs if table.folder in (None, spec.key, spec.family)]
    if not fitting:
        found = _quoted(Counter(name for _, name in specs))
        raise InvalidValueError(
            f"{table.path}: it lies under {table.folder}, but its rows name {found}: another GPU; {_how(table)}"
        )
    return fitting[0]


def _by_folder(table: RawTable) -> GpuSpec:
    specs = [spec for spec in load().values() if table.folder in (spec.key, spec.family)]
    if len(specs) == 1:
        return specs[0]
    if specs:
        keys = " or ".join(spec.key for spec in specs)
        raise InvalidValueError(f"{table.path}: '{table.folder}' may be {keys}; {_how(table)}")
    raise InvalidValueError(f"{table.path}: neither its rows nor its folder name a GPU; {_how(table)}")


def _quoted(names: Counter[str]) -> str:
    return ", ".join(f"'{name}'" for name in list(names)[:3])


def _how(table: RawTable) -> str:
    return f"say which it is: GPU={table.path}, with one of {', '.join(load())}"
