"""``upload``: finish what a sweep could not send to its store."""

import argparse
import sys

from orchestrator.address import is_uri
from orchestrator.errors import StoreError
from orchestrator.verbs.common import add_run


class UnsentError(StoreError):
    """A store that still refuses or does not answer: the run waits in the spool."""

    exit_code = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Send what is missing, and say where the run is.

    Raises:
        UnsentError: the store still refuses or does not answer.
    """
    from orchestrator.remote_runs import spooled_run
    from orchestrator.runs import find_run
    from orchestrator.spool import Origin
    from orchestrator.transfer import upload

    in_spool = is_uri(arguments.run) or is_uri(arguments.dir)
    where = arguments.run, arguments.dir, arguments.spool
    run = spooled_run(*where) if in_spool else find_run(*where).path
    if Origin.of(run) is None:
        raise StoreError(f"{run} has no remote.json: it was not measured for a store (run.dir=URI); it is in its place")
    try:
        done = upload(run)
    except StoreError as error:
        raise UnsentError(str(error)) from error
    sys.stdout.write(f"{done.address}: {done.sent} files sent, {done.there} were there\n")
    return 0
