# PYTHON_ARGCOMPLETE_OK
"""The command line: which verb, its arguments, and exit codes."""

import argparse
import errno
import gc
import importlib
import io
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn, TextIO, cast

from orchestrator import __version__
from orchestrator.errors import OrchestratorError, printable, unknown
from orchestrator.interrupts import INTERRUPTED
from orchestrator.lasting import Lasting
from orchestrator.printing import width, wrapped
from orchestrator.verbs import VERBS

PROGRAM = "python -m orchestrator"
COMPLETING = "_ARGCOMPLETE"
"""Variable of a shell that asks what may follow."""
GARBAGE = 50_000
"""New objects between two looks for garbage: by Python's 700 it looks through all modules while they come in."""
OUTPUT_GONE = (errno.ENOSPC, errno.EIO, errno.EBADF)
"""How writing to a full, broken or closed standard output fails."""
EXIT_CODES = (
    "exit codes: 0 all measured; 1 some measurements failed (check: a rule failed); 2 usage, configuration, or a "
    "cluster or disk that refuses; 3 the gate of compare failed; 130 interrupted"
)


def entry() -> NoReturn:
    """Run one command as a program of its own; end at once, for nothing is left that Python would have to tidy up."""
    if COMPLETING in os.environ:
        from orchestrator.shell import answer

        answer()
    gc.set_threshold(GARBAGE)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no ± must not cost a sweep its tables
    sys.stderr = cast("TextIO", Lasting(sys.stderr))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a batch system's notice is a Ctrl-C
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it is ignored
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # main has told of it
            stream.flush()
    os._exit(code)


def _open_closed_streams() -> None:
    """Give a stream that was closed (``>&-``) somewhere to write, before a file gets its number."""
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number, inheritable=True)
                os.close(nowhere)
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. A user's mistake is one clear message, an internal fault a traceback."""
    words = [at_home(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    debug = "--debug" in words
    _log(debug=debug)
    try:
        code = _dispatch([word for word in words if word != "--debug"])
        sys.stdout.flush()  # here, where a reader that has left is no error
        return code
    except OrchestratorError as error:
        _tell(str(error), debug=debug)
        return error.exit_code
    except KeyboardInterrupt:
        _tell("interrupted", debug=debug)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has left: point stdout elsewhere, or closing it fails again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in OUTPUT_GONE:
            raise
        _tell(f"cannot write the output: {error.strerror or error}", debug=debug)
        return 1


def at_home(word: str) -> str:
    """Fill in the home directory in ``conf=~/x.yaml``, ``--dir=~/runs`` or ``A,~/B``, where a shell does not.

    >>> at_home("results=~/a,~/b").count(os.path.expanduser("~")), at_home("model=a~/b")
    (2, 'model=a~/b')
    """
    return re.sub(r"(?<=[=,])~(?=/)", lambda _: os.path.expanduser("~"), word)


def _tell(message: str, *, debug: bool) -> None:
    """Say why a command ends; with ``debug`` after the traceback of the error that ends it."""
    text = f"{traceback.format_exc()}\n{message}" if debug else message
    sys.stderr.write(f"{printable(text)}\n")


def _dispatch(words: list[str]) -> int:
    if words and words[0] in ("-h", "--help", "help"):
        from orchestrator.help import overview

        sys.stdout.write(overview())
        return 0
    if words and words[0] == "--version":
        sys.stdout.write(f"{__version__}\n")
        return 0
    verb = "run"
    if words and not words[0].startswith("-") and "=" not in words[0]:
        verb = words.pop(0)
        if verb not in VERBS:
            raise UsageError(f"{unknown('verb', verb, VERBS)}\nusage: {PROGRAM} [VERB] [conf=NAME] [key=value ...]")
    parser = verb_parser(verb)
    return int(importlib.import_module(f"orchestrator.verbs.{verb}").execute(parser.parse_intermixed_args(words)))


def verb_parser(verb: str) -> argparse.ArgumentParser:
    """Return the parser of a verb's arguments."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {verb}",
        description="\n".join(wrapped(VERBS[verb], width())),
        epilog=EXIT_CODES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--debug", action="store_true", help="show log lines, and tracebacks of every error")
    importlib.import_module(f"orchestrator.verbs.{verb}").configure(parser)
    parser.epilog = _filled(parser.epilog or "")
    return parser


def _filled(epilog: str) -> str:
    """Wrap lines to the terminal; what follows a key stays a column of its own."""
    heads = [(line, re.match(r".*?\S {2,}|\s*", line)) for line in epilog.splitlines()]
    filled = [wrapped(line[head.end() :], width(), head.group()) for line, head in heads if head is not None]
    return "\n".join("\n".join(lines) for lines in filled)


def _log(*, debug: bool) -> None:
    """Log to stderr: the progress of a sweep without a terminal, and all there is with ``--debug``."""
    if debug:
        logging.basicConfig(level=logging.INFO, format="%(relativeCreated)6d ms %(levelname)s %(name)s: %(message)s")
        logging.getLogger("orchestrator").setLevel(logging.DEBUG)
    else:
        logging.basicConfig(level=logging.WARNING, format="%(message)s")
        logging.getLogger("orchestrator.progress").setLevel(logging.INFO)


class UsageError(OrchestratorError):
    """A command line that cannot be understood."""
