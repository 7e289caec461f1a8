"""What was measured on a device that was not what its model is: left out, told of, taken in on request."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.ranking import rank
from orchestrator.store import RunStore
from tests.builders import per_flop, read_ranking, up_family
from tests.fleets import CANARY, Fake, keep, keep_canaries


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, "run", {})


def ranked(store: RunStore) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rank(store).table.to_pylist()
    return rows


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int | None, int | None]]:
    return [(row["d_ff"], row["rank"], row["tie_group"]) for row in rows]


SOUND, SLOW = Fake(uuid="GPU-0", canaries=[1.0] * 4), Fake(uuid="GPU-1", canaries=[1.0, 1.0, 1.2, 1.2])
COST = per_flop({128: 1.0, 256: 1.1})
REASON = "GPU-1 took 20.0% longer than the other device (NVIDIA H200) in canaries 3-4 of 4"


def test_canaries_never_enter_a_ranking(store: RunStore) -> None:
    keep_canaries(store, SOUND, SLOW)
    assert rank(store).table.num_rows == 0
    assert rank(store, include_suspects=True).table.num_rows == 0


def test_a_family_measured_again_elsewhere_is_ranked_from_the_good_shard_alone(store: RunStore) -> None:
    family = up_family([128, 256])
    keep_canaries(store, SOUND, SLOW)
    keep(store, SLOW, family, per_flop({128: 2.0, 256: 1.0}), slower=1.2, canary=2, rounds=30)
    keep(store, SOUND, family, COST, canary=4, rounds=12)
    ranking = rank(store)
    rows = ranking.table.to_pylist()
    assert places(rows) == [(128, 1, 1), (256, 2, 2)]
    assert {(row["rounds"], *row["devices"]) for row in rows} == {(12, "GPU-0")}
    assert ranking.problems == ()
    assert ranking.notes == (
        f"suspect: {REASON}; 1 of its 1 families left out, all measured on others too: "
        "rank --include-suspects takes them in",
    )


def test_what_a_device_measured_while_it_was_sound_counts(store: RunStore) -> None:
    early, between, late = up_family([128]), up_family([128], tp=2), up_family([128], tp=4)
    keep_canaries(store, SOUND, SLOW)
    keep(store, SLOW, early, COST, canary=1)
    keep(store, SLOW, between, COST, canary=2)  # before the first bad one: nobody knows when it began
    keep(store, SLOW, late, COST, canary=4)
    statuses = {row["tp"]: row["status"] for row in ranked(store)}
    assert statuses == {1: "ok", 2: "suspect", 4: "suspect"}


def test_a_family_that_only_suspect_devices_measured_is_listed_and_says_why(store: RunStore) -> None:
    family = up_family([128, 256, 512], baseline=128)
    keep_canaries(store, SOUND, SLOW)
    failed = {family.gemms[2].gemm_id: ("oom", "needs 3 GiB")}
    keep(store, SLOW, family, COST, canary=3, status=failed)
    ranking = rank(store)
    rows = ranking.table.to_pylist()
    assert [(row["d_ff"], row["rank"], row["status"]) for row in rows] == [
        (128, None, "suspect"),
        (256, None, "suspect"),
        (512, None, "oom"),
    ]
    assert [row["message"] for row in rows] == [REASON, REASON, "up: needs 3 GiB"]
    assert [row["seconds"] for row in rows] == [None] * 3
    assert "1 of its 1 families left out, 1 of them measured nowhere else" in ranking.notes[0]


def test_suspects_are_taken_in_on_request(store: RunStore) -> None:
    family = up_family([128, 256])
    keep_canaries(store, SOUND, SLOW)
    keep(store, SLOW, family, COST, slower=1.2, canary=3)
    ranking = rank(store, include_suspects=True)
    assert places(ranking.table.to_pylist()) == [(128, 1, 1), (256, 2, 2)]
    assert ranking.notes == (f"suspect: {REASON}; 1 of its 1 families are ranked all the same",)


def test_a_suspect_attempt_never_hides_a_sound_one_of_the_same_device(store: RunStore) -> None:
    family = up_family([128, 256])
    keep_canaries(store, SOUND, SLOW)
    keep(store, SLOW, family, COST, canary=1, attempt=1)
    keep(store, SLOW, family, per_flop({128: 2.0, 256: 1.0}), canary=3, attempt=2)
    assert places(ranked(store)) == [(128, 1, 1), (256, 2, 2)]


def test_a_death_elsewhere_does_not_hide_that_there_are_suspect_samples(store: RunStore) -> None:
    family = up_family([128])
    keep_canaries(store, SOUND, SLOW)
    keep(store, SLOW, family, COST, canary=3)
    died = {gemm.gemm_id: ("worker_died", "signal 9") for gemm in family.gemms}
    keep(store, SOUND, family, COST, canary=4, status=died)
    assert [row["status"] for row in ranked(store)] == ["suspect"]


def test_without_canaries_nothing_is_suspect(store: RunStore) -> None:
    family = up_family([128])
    for device, slower in ((SOUND, 1.0), (SLOW, 2.0)):
        keep(store, device, family, COST, slower=slower)
    ranking = rank(store)
    assert (ranking.notes, [row["status"] for row in ranking.table.to_pylist()]) == ((), ["ok"])


def test_a_canary_that_lacks_a_gemm_is_no_reading(store: RunStore) -> None:
    keep_canaries(store, SOUND, Fake(uuid="GPU-1", canaries=[1.0]))
    failed = {CANARY.gemms[0].gemm_id: ("oom", "needs 3 GiB")}
    keep(store, SLOW, CANARY, per_flop({}), slower=9.0, attempt=2, status=failed)
    assert rank(store).notes == ()


# The verbs


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A run in which one of two devices became slow, and one Family was measured on that one alone."""
    store = RunStore.create(tmp_path, "run", {"bundles": 2, "conf": "cluster"})
    sound, slow = Fake(uuid="GPU-0", canaries=[1.0, 1.0]), Fake(uuid="GPU-1", canaries=[1.0, 1.3])
    keep_canaries(store, sound, slow)
    keep(store, sound, up_family([128, 256]), per_flop({256: 1.1}), canary=1)
    keep(store, slow, up_family([512, 1024], h=32), per_flop({}), slower=1.3, canary=1)
    return tmp_path


def test_rank_leaves_suspects_out_and_says_so(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rank", "run", "--dir", str(results)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "run: Candidates: 2 ok, 2 suspect" in out
    assert "not measured: 2 suspect; d_ff 512: GPU-1 took 30.0% longer than the other device" in out
    assert "1 of its 1 families left out, 1 of them measured nowhere else: rank --include-suspects" in out
    assert "NVIDIA H200: 2 devices on node1" in out
    text = (results / "run" / "ranking.md").read_text()
    assert "suspect: GPU-1 took 30.0% longer" in text
    assert "## NVIDIA H200: 2 devices on node1" in text


@pytest.mark.parametrize("line", ["rank --csv", "export --to csv --out {here}/csv", "report --out {here}/a.html"])
def test_what_is_said_of_suspects_commands_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    store = RunStore.create(tmp_path, "run", {"bundles": 1, "conf": "cluster"})
    sound, slow = Fake(uuid="GPU-0", canaries=[1.0, 1.0]), Fake(uuid="GPU-1\x1b[2J\x07", canaries=[1.0, 1.3])
    keep_canaries(store, sound, slow)
    keep(store, sound, up_family([128, 256]), per_flop({}), canary=1)
    keep(store, slow, up_family([512, 1024], h=32), per_flop({}), slower=1.3, canary=1)
    main([*line.format(here=tmp_path).split(), "run", "--dir", str(tmp_path)])
    said = capsys.readouterr().err
    assert "GPU-1\\x1b[2J\\x07 took 30.0% longer" in said
    assert not {"\x1b", "\x07"} & set(said)
    main(["rank", "run", "--dir", str(tmp_path)])
    assert not {"\x1b", "\x07"} & set((tmp_path / "run" / "ranking.md").read_text())


def test_rank_takes_suspects_in_on_request_and_out_again(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RunStore.open(results / "run")
    main(["rank", "run", "--dir", str(results)])
    before = store.ranking_path.read_bytes()
    capsys.readouterr()
    assert main(["rank", "run", "--dir", str(results), "--include-suspects"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "run: Candidates: 4 ok" in out
    assert "1 of its 1 families are ranked all the same" in out
    assert read_ranking(store)["status"].to_pylist() == ["ok"] * 4
    assert main(["rank", "run", "--dir", str(results)]) == 0
    assert store.ranking_path.read_bytes() == before


def test_status_counts_no_canaries(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "run", "--dir", str(results)]) == 0
    out = capsys.readouterr().out
    assert "2 of 2 have a shard" in out
    assert "gemms     4 ok" in out
