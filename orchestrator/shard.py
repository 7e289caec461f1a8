"""The rows of one Shard: plain columns from a Bundle and what one device measured of it."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from orchestrator.roles import ROLES
from orchestrator.shape import DIMENSIONS
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm, largest_power_of_two
from tasks.records import DeviceInfo, GemmFacts, Measurement, Telemetry
from tasks.settings import PROTOCOL_VERSION, Timing

FACTS = "facts"
SAMPLE = "sample"

RENAMED = {"kind": "device_kind", "energy_j": "window_energy_j"}
"""Fields of DeviceInfo and Telemetry whose own name means something else in a Shard (a Gemm's kind, its energy)."""

SAMPLE_COLUMNS = (
    "record",
    "bundle_id",
    "attempt",
    "uuid",
    "gemm_id",
    "round",
    "position",
    "calls",
    "lead_calls",
    "seconds",
    "slowdown",
)

Row = dict[str, Any]


def fact_rows(
    bundle: Bundle,
    measurement: Measurement,
    timing: Timing,
    *,
    attempt: int,
    code_version: str,
    plan_hash: str,
    canary: int | None = None,
) -> list[Row]:
    """Return one row per Family, Candidate and part, with all that is known about it and about the measurement."""
    known = {facts.gemm_id: facts for facts in measurement.facts}
    shared: Row = {
        "record": FACTS,
        "bundle_id": measurement.bundle_id,
        "attempt": attempt,
        "canary": canary,
        "code_version": code_version,
        "plan_hash": plan_hash,
        **_renamed(measurement.device),
        **_renamed(measurement.telemetry),
        **_timing(timing),
        **_measuring(measurement),
    }
    return [
        {**shared, **_point(family, candidate), **_gemm(part, known), "allow_tf32": part.gemm.dtype == "tf32"}
        for family in bundle.families
        for candidate in family.candidates
        for part in candidate.parts
    ]


def sample_columns(measurement: Measurement, *, attempt: int) -> dict[str, list[Any]]:
    """Return one row per sample, as columns: there may be a hundred thousand of them."""
    samples, count = measurement.samples, len(measurement.samples)
    return {
        "record": [SAMPLE] * count,
        "bundle_id": [measurement.bundle_id] * count,
        "attempt": [attempt] * count,
        "uuid": [measurement.device.uuid] * count,
        "gemm_id": [sample.gemm_id for sample in samples],
        "round": [sample.round for sample in samples],
        "position": [sample.position for sample in samples],
        "calls": [sample.calls for sample in samples],
        "lead_calls": [sample.lead_calls for sample in samples],
        "seconds": [sample.seconds for sample in samples],
        "slowdown": [sample.slowdown for sample in samples],
    }


def _renamed(record: DeviceInfo | Telemetry) -> Row:
    return {RENAMED.get(field.name, field.name): getattr(record, field.name) for field in fields(record)}


def _timing(timing: Timing) -> Row:
    return {
        "protocol": timing.protocol,
        "protocol_version": PROTOCOL_VERSION[timing.protocol],
        "l2": timing.cache,
        "power": timing.regime,
        "tie_pct": timing.tie_pct,
        "confidence": timing.confidence,
        "looks": len(timing.looks),
        "random_seed": timing.seed,
    }


def _measuring(measurement: Measurement) -> Row:
    started = datetime.fromisoformat(measurement.started_utc)
    return {
        "started_utc": started if started.tzinfo else started.replace(tzinfo=UTC),
        "prepare_s": measurement.prepare_s,
        "soak_s": measurement.soak_s,
        "measuring_s": measurement.measuring_s,
        "rounds": measurement.rounds,
        "resolved": measurement.resolved,
        "stop_reason": measurement.stop_reason,
        "redone": measurement.redone,
        "first_round": measurement.first_round,
        "notes": measurement.notes,
    }


def _point(family: Family, candidate: Candidate) -> Row:
    known = family.dimensions(candidate)
    # None for a canary, which is no part of a model.
    mlp = family.role in ROLES and ROLES[family.role].dimensions == ("h", "d_ff")
    return {
        "family_id": family.family_id,
        "role": family.role,
        "tp": family.tp,
        "batch": known.get("batch", family.batch),
        "seq": family.seq,
        "dtype": family.dtype,
        "passes": family.passes,
        **{name: known.get(name) for name in DIMENSIONS},
        "axis": family.axis,
        "value": candidate.value,
        "baseline": candidate.baseline,
        "params": candidate.params,
        "mlp_params": candidate.params if mlp else None,
        "local_dim": candidate.local_dim,
    }


def _gemm(part: Part, known: dict[str, GemmFacts]) -> Row:
    gemm = part.gemm
    # A Gemm that the device never reported on must not pass for a measured one.
    facts = known.get(gemm.gemm_id, GemmFacts(gemm_id=gemm.gemm_id, status="skipped", message="not measured"))
    return {
        "part": part.name,
        **_shape(gemm),
        "status": facts.status,
        "message": facts.message,
        "launch": facts.launch,
        "kernel": facts.kernel,
        "energy_j": facts.energy_j,
    }


def _shape(gemm: Gemm) -> Row:
    return {
        "gemm_id": gemm.gemm_id,
        "kind": gemm.kind,
        "b": gemm.b,
        "m": gemm.m,
        "n": gemm.n,
        "k": gemm.k,
        "layout": gemm.layout,
        "flops": gemm.flops,
        "bytes": gemm.bytes,
        "align_m": largest_power_of_two(gemm.m),
        "align_n": largest_power_of_two(gemm.n),
        "align_k": largest_power_of_two(gemm.k),
    }
