"""What was swept and where, a column a run."""

from orchestrator.report.environment import configuration, environment, swept
from orchestrator.report.source import open_runs
from tests.reports import EXAMPLES, candidates, made_run


def test_facts_that_differ_between_runs_are_marked() -> None:
    runs = [made_run([], shards=[{"driver": driver, "torch": "2.11"}]) for driver in ("550", "580")]
    found = {fact.name: (fact.values, fact.differs) for fact in environment(runs)}
    assert found["driver"] == (("550", "580"), True)
    assert found["torch"] == (("2.11", "2.11"), False)
    assert "BLAS" not in found  # nobody says


def test_several_values_of_one_fact_are_listed() -> None:
    run = made_run([], shards=[{"host": f"node{i:02}"} for i in range(14)])
    (hosts,) = (fact for fact in environment([run]) if fact.name == "host")
    assert hosts.values[0].endswith("node10, node11, and 2 more")


def test_the_committed_run_tells_its_space_and_time() -> None:
    (run,) = open_runs(["examples/h200-seed-and-mlp"], str(EXAMPLES.parent))
    found = {fact.name: fact.values[0] for fact in swept([run])}
    assert found["GPUs"] == "1 × NVIDIA H200"
    assert found["began"] == "2026-11-29 20:16:51 UTC"
    assert found["tp"] == "1, 2, 4, 8"
    assert found["d_ff"] == "ratio 8/3, distance 100, step 4"
    assert found["Candidates"] == "720 ok"
    assert "tie_pct: 0.5" in configuration(run)


def test_a_run_without_a_manifest_is_told_by_its_shards() -> None:
    run = made_run(candidates(0, 2))
    found = {fact.name: fact.values[0] for fact in swept([run])}
    assert found == {
        "GPUs": "1 × NVIDIA H200",
        "hosts": "node1",
        "Candidates": "2 ok",
        "measuring, all devices": "2.0 s",
    }
    assert configuration(run) == ""
