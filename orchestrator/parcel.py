"""Assignments on their way to a worker as bytes: Ray's own pickler takes ten times as long for a Bundle's records."""

import io
import pickle
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from tasks.care import Care
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.records import GemmFacts

RECORDS: tuple[type, ...] = (Bundle, Family, Candidate, Part, Gemm, Care, GemmFacts)
"""Frozen records of which an Assignment consists: pickled as their class and their values, and made again unchecked."""

Reduced = tuple[Callable[..., object], tuple[object, ...]]

_NAMES = {record: tuple(field.name for field in fields(record)) for record in RECORDS}


def packed(value: object) -> bytes:
    """Pickle ``value``; ``pickle.loads`` makes it again.

    >>> pickle.loads(packed(Gemm(kind="mm", b=1, m=32, n=64, k=16, dtype="fp16"))).gemm_id
    'mm-1x32x64x16-fp16-nn'
    """
    sink = io.BytesIO()
    pickler = pickle.Pickler(sink, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
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
