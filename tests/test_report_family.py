"""The Families of several runs beside each other."""

from orchestrator.report.family import families, title
from tests.reports import candidates, made_run


def test_runs_meet_in_the_families_that_they_share() -> None:
    old = made_run(candidates(0, 3, gpu="NVIDIA H100", speed=0.5) + candidates(1, 3, gpu="NVIDIA H100"), name="old")
    new = made_run(candidates(1, 3) + candidates(2, 4), name="new")
    old = made_run(old.rows, name="old", shards=[{"gpu": "NVIDIA H100"}])
    found = families([old, new])
    assert [family.title.split(" · ")[1] for family in found] == ["h=1024", "h=2048", "h=3072"]
    assert [[(s.run, s.start, s.count) for s in family.series] for family in found] == [
        [(0, 0, 3)],
        [(0, 3, 3), (1, 0, 3)],
        [(1, 3, 4)],
    ]
    assert [series.label for series in found[1].series] == ["old, NVIDIA H100", "new, NVIDIA H200"]


def test_one_run_is_told_apart_by_its_gpus_and_runs_of_one_gpu_by_their_names() -> None:
    both = made_run(candidates(0, 2) + candidates(0, 2, gpu="NVIDIA H100"), shards=[{}, {"gpu": "NVIDIA H100"}])
    assert [series.label for series in families([both])[0].series] == ["NVIDIA H200", "NVIDIA H100"]
    runs = [made_run(candidates(0, 2), name=name) for name in ("a", "b")]
    assert [series.label for series in families(runs)[0].series] == ["a", "b"]


def test_what_was_measured_by_another_protocol_is_another_family() -> None:
    rows = candidates(0, 2) + [{**row, "protocol": "seed"} for row in candidates(0, 2)]
    assert [len(family.series) for family in families([made_run(rows)])] == [1, 1]


def test_a_title_names_what_all_candidates_share() -> None:
    rows = [{**row, "axis": "a", "a": 8 + i, "passes": "dgrad"} for i, row in enumerate(candidates(0, 2))]
    assert title(made_run(rows).rows) == "mlp · h=1024 · tp=1 · batch=1 · seq=2048 · bf16 · dgrad"
