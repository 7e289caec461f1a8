"""Assignments and reports as bytes: Ray's own pickler takes several times as long for records of records."""

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from orchestrator.engine import Report, Result
from orchestrator.queue import Assignment
from tasks.care import Care
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.records import GemmFacts, Progress

RECORDS: tuple[type, ...] = (Assignment, Bundle, Family, Candidate, Part, Gemm, Care, GemmFacts, Progress, Result)
"""Frozen records, pickled as their class and their values, and made again unchecked."""

Reduced = tuple[Callable[..., object], tuple[object, ...]]

_NAMES = {record: tuple(field.name for field in fields(record)) for record in RECORDS}


def packed(values: Sequence[Assignment | Report]) -> bytes:
    """Pickle ``values``; ``pickle.loads`` makes a list of them again."""
    sink = io.BytesIO()
    pickler = pickle.Pickler(sink, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(list(values))
    return sink.getvalue()


def _made(record: type, *values: object) -> object:
    made: object = object.__new__(record)
    for name, value in zip(_NAMES[record], values, strict=True):
        object.__setattr__(made, name, value)
    return made


def _reducer(record: type) -> Callable[[Any], Reduced]:
    values: Callable[[Any], tuple[object, ...]] = attrgetter(*_NAMES[record])  # a tuple: each has several fields

    def reduced(instance: object) -> Reduced:
        return _made, (record, *values(instance))

    return reduced


_REDUCERS: dict[type, Callable[[Any], Reduced]] = {record: _reducer(record) for record in RECORDS}
