"""``rank``: a run's ranking from its shards alone."""

import argparse
import sys

from orchestrator.errors import StoreError
from orchestrator.forms import TABLES
from orchestrator.schema import Rank
from orchestrator.verbs.arguments import add_forms, positive
from orchestrator.verbs.common import add_run

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
    from orchestrator.large_ranking import LARGE, rank_large
    from orchestrator.ranking import rank
    from orchestrator.ranking_output import printed_ranking
    from orchestrator.ranking_stream import RankingStream
    from orchestrator.runs import find_run
    from orchestrator.spool import Origin
    from orchestrator.terminal import markdown
    from orchestrator.transfer import upload

    store = find_run(arguments.run, arguments.dir, arguments.spool)
    top = arguments.top or store.manifest().get("config", {}).get("rank", {}).get("top", Rank().top)
    stream = RankingStream(store.reader(), arguments.include_suspects)
    if arguments.form == TABLES and stream.rows > LARGE:
        return rank_large(store, stream, top)
    ranking = rank(store, include_suspects=arguments.include_suspects, reader=stream.reader)
    whole = printed_ranking(arguments.form, store, ranking, top)
    text = markdown(store.path, ranking.table, top, notes=ranking.notes, fleets=ranking.fleets)
    try:
        store.write_ranking(ranking.table, text)
        if Origin.of(store.path) is not None:
            upload(store.path)
    except StoreError as error:  # somebody else's run, an archive: the tables are what was asked for
        sys.stderr.write(f"the ranking was not written everywhere: {error}\n")
    return int(not whole or bool(ranking.problems))
