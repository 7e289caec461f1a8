"""Writing to standard output where the exit code has more to tell than whether somebody read it."""

import os
import sys
from collections.abc import Callable


def printed(show: Callable[[], object]) -> bool:
    """Print by ``show``; tell whether it could be written.

    What was found is told by the exit code, also where nobody reads the tables any more.
    """
    try:
        show()
        sys.stdout.flush()
    except BrokenPipeError:
        _nowhere()  # the reader has seen enough
    except OSError as error:
        _nowhere()
        sys.stderr.write(f"cannot write the output: {error.strerror or error}\n")
        return False
    return True


def _nowhere() -> None:
    """Point standard output elsewhere, or closing it fails again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
