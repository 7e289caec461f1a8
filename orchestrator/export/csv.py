"""CSV: one row a Gemm, with all that is known of it."""

import csv
import io
from typing import Any

from orchestrator.export.contract import Export, Exporter
from orchestrator.export.request import Request
from orchestrator.export.selection import Entry, Selection

FILE = "gemms.csv"
_SHAPE = ("kind", "b", "m", "n", "k", "dtype", "layout", "flops", "bytes")


def export(selection: Selection, request: Request) -> Export:
    """Write ``gemms.csv``; lists in a cell (roles, tp) are joined by spaces."""
    out = io.StringIO()
    rows = [_row(selection, entry) for entry in selection.entries]
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return Export(files={FILE: out.getvalue().encode()}, gemms=len(rows))


def _row(selection: Selection, entry: Entry) -> dict[str, Any]:
    points = [use.point for use in entry.uses]
    spread = entry.spread
    return {
        "gpu": selection.gpu,
        "gemm_id": entry.gemm.gemm_id,
        **{name: getattr(entry.gemm, name) for name in _SHAPE},
        "seconds": entry.seconds,
        "tflops": entry.tflops,
        "least_s": spread.least,
        "most_s": spread.most,
        "mean_s": spread.mean,
        "std_s": spread.std,
        "samples": spread.samples,
        "energy_j": entry.energy_j,
        "best": int(entry.best),
        "roles": " ".join(dict.fromkeys(point["role"] for point in points)),
        "tp": " ".join(dict.fromkeys(str(point["tp"]) for point in points)),
        **selection.regime,
        "software": "; ".join(selection.software),
        "run": selection.run,
    }


EXPORTER = Exporter(export=export)
