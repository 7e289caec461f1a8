"""``rank``: a run's ranking from its shards alone."""

import argparse
import sys
from typing import TYPE_CHECKING

from orchestrator.errors import StoreError
from orchestrator.schema import Rank
from orchestrator.verbs.arguments import add_forms, positive
from orchestrator.verbs.common import add_run

if TYPE_CHECKING:
    from orchestrator.store import RunStore

RANKING = "the whole ranking"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run(parser)
    add_forms(parser, as_json=RANKING, as_csv=f"{RANKING}, a row a candidate,")
    parser.add_argument(
        "--top", type=positive, default=None, help="candidates to print per family (default: the run's rank.top)"
    )
    parser.add_argument(
        "--include-suspects",
        action="store_true",
        help="rank also what devices measured while their canaries were off their model's",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Rank, write ``ranking.parquet`` and ``ranking.md``, and print; 1 where a shard could not be read."""
    from orchestrator.ranked_run import rank_run
    from orchestrator.runs import find_run

    store = find_run(arguments.run, arguments.dir, arguments.spool)
    top = arguments.top or store.manifest().get("config", {}).get("rank", {}).get("top", Rank().top)
    ranked = rank_run(store, top, arguments.form, include_suspects=arguments.include_suspects)
    if ranked.large:
        ranked.write()
        whole = ranked.printed()
        _sent(store)
        return int(not whole or bool(ranked.problems))
    whole = ranked.printed()
    try:
        ranked.write()
        _sent(store)
    except StoreError as error:  # somebody else's run, an archive: the tables are what was asked for
        sys.stderr.write(f"the ranking was not written everywhere: {error}\n")
    return int(not whole or bool(ranked.problems))


def _sent(store: "RunStore") -> None:
    """Send what was written of a run that belongs in a store."""
    from orchestrator.spool import Origin
    from orchestrator.transfer import upload

    if Origin.of(store.path) is not None:
        upload(store.path)
