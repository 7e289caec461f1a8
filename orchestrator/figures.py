"""How figures are written for reading, the same in every table."""

from datetime import timedelta

UNKNOWN = "-"
"""What stands where there is no figure."""


def duration(seconds: float | None) -> str:
    """Write the time of a call in microseconds or milliseconds.

    >>> duration(12.34e-6), duration(0.0123), duration(None)
    ('12.3 µs', '12.300 ms', '-')
    """
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def clock(seconds: float) -> str:
    """Write the time of a sweep as a clock does.

    >>> clock(75.4)
    '0:01:15'
    """
    return str(timedelta(seconds=int(seconds)))
