"""``compact``: thousands of a run's Shards into few files with the same rows."""

import argparse
import sys

from orchestrator.address import is_uri
from orchestrator.completion import completed, run_names
from orchestrator.errors import StoreError
from orchestrator.verbs.arguments import add_dir

INSTEAD = (
    "a run in a store is not compacted where others may be reading it: copy it (cp -r), remove remote.json from the "
    "copy, compact the copy by its path, and put that into the store under a name of its own"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    run = parser.add_argument(
        "run", nargs="?", default="latest", metavar="RUN", help="path, name or latest (the default)"
    )
    completed(run, run_names)
    add_dir(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Merge the run's Shards and say what was done; 1 where one could not be read, and so stays as it is."""
    from orchestrator.compaction import compact
    from orchestrator.runs import find_run
    from orchestrator.spool import Origin

    if is_uri(arguments.run) or is_uri(arguments.dir):
        named = arguments.run if is_uri(arguments.run) else f"{arguments.dir}/{arguments.run}"
        raise StoreError(f"{named}: {INSTEAD}")
    store = find_run(arguments.run, arguments.dir)
    origin = Origin.of(store.path)
    if origin is not None:
        raise StoreError(f"{store.path} belongs in {origin.uri}: {INSTEAD}")
    done = compact(store)
    files = "file" if done.before == 1 else "files"
    sys.stdout.write(f"{store.path}: {done.before:,} {files} before, {done.after:,} now, with the same rows\n")
    for problem in done.problems:
        sys.stdout.write(f"{problem}\n")
    return int(bool(done.problems))
