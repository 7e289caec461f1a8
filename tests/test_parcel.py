"""Assignments on their way to a worker, and reports on their way back."""

import pickle
from dataclasses import fields

import pytest

from orchestrator.engine import Failure, Placed, Report, Result
from orchestrator.parcel import RECORDS, packed
from orchestrator.queue import Assignment
from tasks.care import Care
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.records import GemmFacts, Progress
from tests.fakes import device_info

SHARED = Gemm(kind="bmm", b=4, m=32, n=64, k=16, dtype="fp8", layout="nt")
FAMILY = Family(
    role="mlp",
    h=64,
    tp=2,
    batch=4,
    seq=None,
    dtype="fp8",
    axis="a",
    fixed=(("kv", 8),),
    passes="fwd+bwd",
    candidates=(
        Candidate(value=8, parts=(Part(name="up", gemm=SHARED),), follows=(("head_dim", 8),), local_dim=4, params=7),
        Candidate(value=16, parts=(Part(name="up", gemm=SHARED), Part(name="down", gemm=SHARED)), baseline=True),
    ),
)
WHOLE = Assignment(
    bundle=Bundle(families=(FAMILY, FAMILY)),
    attempt=3,
    worker="w",
    device="GPU-1",
    care=Care(one_by_one=True, last=False, lost=(GemmFacts(gemm_id="g", status="oom", message="m"),), limit=SHARED),
    canary=7,
    is_canary=True,
)


REPORTS: tuple[Report, ...] = (
    Placed(),
    device_info(0),
    Progress(bundle_id="b", state="try", rounds=1, gemms=2, trying="g"),
    Result(shard=b"PAR1", failed=WHOLE.care.lost, canary_s=0.5),
    Failure(status="oom", message="m", detail="d"),
)


def test_an_assignment_arrives_as_it_was_sent() -> None:
    (found,) = pickle.loads(packed([WHOLE]))
    assert found == WHOLE
    assert repr(found) == repr(WHOLE)
    assert found.bundle.gemms == (SHARED,)


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_arrives_as_it_was_sent(report: Report) -> None:
    assert pickle.loads(packed([report])) == [report]


def test_what_was_one_record_is_one_again() -> None:
    found = pickle.loads(packed([WHOLE]))[0].bundle.families[1].candidates
    assert found[0].parts[0].gemm is found[1].parts[1].gemm


def test_every_record_of_an_assignment_is_packed_by_its_fields() -> None:
    # attrgetter gives a tuple of values only where there are several
    assert all(len(fields(record)) > 1 for record in RECORDS)
    first = FAMILY.candidates[0]
    values = (WHOLE, *REPORTS[2:4], WHOLE.bundle, FAMILY, first, first.parts[0], SHARED, WHOLE.care, WHOLE.care.lost[0])
    assert {type(value) for value in values} == set(RECORDS)
