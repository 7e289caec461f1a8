"""vidur: ``mlp.csv``, times of a layer's linear operators by model, tokens and tensor-parallel size.

Its reader filters by the model's dimensions and fits each operator's median over ``num_tokens``. A row that lacks one
operator would break the fit, so every row has the same ones.
"""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import ExportError
from orchestrator.export.contract import Export, Exporter, kept, nothing
from orchestrator.export.facts import Facts
from orchestrator.export.request import Request
from orchestrator.export.selection import Entry, Selection, Use

TARGET = "vidur"
FILE = "mlp.csv"
OPERATORS = {
    "attn_pre_proj": ("qkv",),
    "attn_post_proj": ("out",),
    "mlp_up_proj": ("gate_up", "up"),
    "mlp_down_proj": ("down",),
}
"""Its operators, and the parts of our roles that are them."""
OPERATOR_OF = {part: operator for operator, parts in OPERATORS.items() for part in parts}
ATTENTION = ("attn_pre_proj", "attn_post_proj")
LEAD = "mlp_up_proj"
"""The operator that tells whether the MLP is gated: without it there is no row."""
GATED = {"gate_up": True, "up": False}
MODEL = ("a", "kv", "v")
KEYS = (
    *("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "vocab_size", "use_gated_mlp", "num_tokens"),
    "num_tensor_parallel_workers",
)
NO_GEMMS = "mlp_act, attn_rope, the norms and add"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Which layer an operator is of; None where its Point does not say."""

    tokens: int
    tp: int
    h: int
    d_ff: int | None
    gated: bool | None
    a: int | None
    kv: int | None
    v: int | None

    @property
    def where(self) -> tuple[int, int, int]:
        """What every operator's Point says."""
        return (self.tokens, self.tp, self.h)

    def with_unknown_of(self, other: "Place") -> "Place | None":
        """Return this place with what only the other says; None where they are of different layers."""
        joined: dict[str, Any] = {}
        for name in self.__slots__:
            mine, yours = getattr(self, name), getattr(other, name)
            if mine is not None and yours is not None and mine != yours:
                return None
            joined[name] = yours if mine is None else mine
        return Place(**joined)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """The operators of one layer that were measured."""

    place: Place
    times: Mapping[str, Entry]


def export(selection: Selection, request: Request) -> Export:
    """Write ``mlp.csv``; times are in milliseconds."""
    entries, left_out = kept(TARGET, selection.entries, _why_not)
    dtypes = sorted({entry.gemm.dtype for entry in entries})
    if len(dtypes) > 1:
        raise ExportError(f"vidur's file names no dtype, and these are several: choose one by dtype={'|'.join(dtypes)}")
    measured = _measured(entries)
    if LEAD not in measured:
        raise ExportError(
            "vidur's rows are of a layer's MLP: sweep mlp or mlp_gelu, or mlp_gate_up|mlp_up and mlp_down"
        )
    layers, lacking = _layers(measured)
    left_out += lacking
    if not layers:
        raise nothing(TARGET, left_out)
    rows = _rows(layers, selection, request)
    notes = [f"vidur also wants {NO_GEMMS}, which are no Gemms: take these columns from a profile of its own"]
    if missing := [operator for operator in OPERATORS if operator not in measured]:
        notes.append(f"no {', '.join(missing)}: vidur cannot be trained without; sweep qkv, attn_out and mlp together")
    used = {entry.gemm for layer in layers for entry in layer.times.values()}
    return Export(files={FILE: _csv(rows)}, gemms=len(used), left_out=left_out, notes=tuple(notes))


def _why_not(entry: Entry) -> str | None:
    if not any(use.part in OPERATOR_OF for use in entry.uses):
        return f"Gemms that are none of {', '.join(OPERATORS)}"
    return None


def _measured(entries: Sequence[Entry]) -> dict[str, dict[Place, Entry]]:
    """The entries by operator, in the order of OPERATORS, and by the layer that each is of."""
    found: dict[str, dict[Place, Entry]] = {operator: {} for operator in OPERATORS}
    for entry in entries:
        for use in entry.uses:
            if use.part in OPERATOR_OF:
                found[OPERATOR_OF[use.part]][_place(entry, use)] = entry
    return {operator: places for operator, places in found.items() if places}


def _place(entry: Entry, use: Use) -> Place:
    point = use.point
    attention = OPERATOR_OF[use.part] in ATTENTION
    return Place(
        tokens=entry.gemm.m,
        tp=point["tp"],
        h=point["h"],
        d_ff=None if attention else point["d_ff"],
        gated=GATED.get(use.part),
        a=point["a"],
        kv=point["kv"],
        v=point["v"],
    )


def _layers(measured: Mapping[str, Mapping[Place, Entry]]) -> tuple[list[Layer], Counter[str]]:
    """Join the operators of one layer; a layer that lacks one that others have is counted instead."""
    by_where = {operator: _by_where(places) for operator, places in measured.items()}
    layers: dict[Place, Layer] = {}
    lacking: Counter[str] = Counter()
    for lead in measured[LEAD]:
        place, times = lead, {}
        for operator, places in by_where.items():
            for other, entry in places.get(lead.where, ()):
                joined = place.with_unknown_of(other)
                if joined is not None:
                    place, times[operator] = joined, entry
                    break
        if absent := [operator for operator in measured if operator not in times]:
            lacking[f"layers without {', '.join(absent)}, which others have"] += 1
        else:
            layers[place] = Layer(place=place, times=times)
    return list(layers.values()), lacking


def _by_where(places: Mapping[Place, Entry]) -> dict[tuple[int, int, int], list[tuple[Place, Entry]]]:
    found: dict[tuple[int, int, int], list[tuple[Place, Entry]]] = {}
    for place, entry in places.items():
        found.setdefault(place.where, []).append((place, entry))
    return found


def _rows(layers: Sequence[Layer], selection: Selection, request: Request) -> list[dict[str, Any]]:
    facts = Facts(target=TARGET, spec=selection.spec, given=request.facts)
    told = [name for name in MODEL if any(getattr(layer.place, name) is None for layer in layers)]
    said = {name: facts.need(name) for name in told}
    facts.check()
    sizes = sorted({layer.place.h for layer in layers})
    if told and len(sizes) > 1:
        given = ", ".join(f"{name}=" for name in told)
        raise ExportError(
            f"{given} are of one model, and the layers of several: choose one by h={'|'.join(map(str, sizes))}"
        )
    rows = [_row(layer, said) for layer in layers]
    return sorted(rows, key=lambda row: tuple(row[name] for name in KEYS))


def _row(layer: Layer, said: Mapping[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for operator, entry in layer.times.items():
        spread = entry.spread
        times = {
            "min": spread.least,
            "max": spread.most,
            "mean": spread.mean,
            "median": entry.seconds,
            "std": spread.std,
        }
        row |= {f"time_stats.{operator}.{name}": seconds * 1e3 for name, seconds in times.items()}
    place = layer.place
    a, kv, v = (said[name] if getattr(place, name) is None else getattr(place, name) for name in MODEL)
    values = (a, kv, place.h, place.d_ff, v, place.gated, place.tokens, place.tp)
    return row | dict(zip(KEYS, values, strict=True))


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


EXPORTER = Exporter(export=export, facts=("a", "kv", "v"))
