"""``resume=RUN``: its arguments, and what is refused."""

import socket
from pathlib import Path
from typing import Any

import pytest

from orchestrator import resumption
from orchestrator.cli import main
from orchestrator.config import compose, to_dict
from orchestrator.errors import ConfigError, InvalidValueError, ResumeError, StoreError
from orchestrator.resumption import choose, done, prepare, record, retried, wish
from orchestrator.space import expand_space, plan_hash
from orchestrator.store import RunStore, shard_table
from tasks.settings import PROTOCOL_VERSION, Timing
from tests.builders import measurement, per_flop

WORDS = ("conf=cpu", "space.h=64", "space.tp=1", "space.roles=mlp_up", "space.seq=16", "space.d_ff=[128,160]")


def begun(results: Path, name: str = "it", **manifest: Any) -> RunStore:
    """A run of WORDS, with nothing measured yet."""
    config = compose("cpu", WORDS[1:])
    plan = plan_hash(config, expand_space(config))
    facts = {"conf": "cpu", "config": to_dict(config), "plan_hash": plan, "status": "interrupted", **manifest}
    return RunStore.create(results, name, facts)


def measured(store: RunStore, plan: str | None = None) -> None:
    """All of WORDS is measured."""
    expansion = expand_space(compose("cpu", WORDS[1:]))
    for bundle in expansion.bundles:
        taken = measurement(bundle, per_flop({}), rounds=12)
        table = shard_table(
            bundle, taken, Timing(), attempt=1, code_version="1", plan_hash=plan or store.manifest()["plan_hash"]
        )
        store.write_shard(table)


def asked(results: Path, *words: str) -> tuple[resumption.Chosen, resumption.Wish]:
    found = wish([f"run.dir={results}", *words])
    assert found is not None
    return choose(found), found


def test_without_the_word_there_is_nothing_to_resume() -> None:
    assert wish(["conf=cpu", "space.h=64"]) is None


def test_the_arguments_are_parted_from_those_of_the_sweep() -> None:
    found = wish(["space.h=64", "resume=latest", "retry=oom, timeout", "resume_anyway=true", "conf=cpu"])
    assert found is not None
    assert (found.run, found.anyway, found.retry) == ("latest", True, frozenset({"oom", "timeout"}))
    assert found.words == ("space.h=64", "conf=cpu")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["retry=failed"], "argument retry=failed: which run? resume=latest or resume=RUN"),
        (["resume="], "argument resume=: which run?"),
        (["resume=latest", "resume_anyway=yes"], "argument resume_anyway=yes: expected true or false"),
        (["resume=latest", "retry=ooom"], "argument retry=ooom: unknown status 'ooom'; did you mean oom?"),
        (["resume=latest", "retry=ooom,timout"], "unknown status 'timout'; did you mean timeout?"),
        (["resume=latest", "retry=ok"], "argument retry=ok: unknown status 'ok'"),
        (["resume=latest", "retry="], "argument retry=: unknown status ''"),
    ],
)
def test_wrong_arguments_are_named(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        wish(words)
    assert message in str(caught.value)


def test_failed_means_every_failure_and_nothing_that_is_none() -> None:
    assert retried("oom,skipped") == {"oom", "skipped"}
    assert retried("failed,skipped") == retried("failed") | {"skipped"}
    assert retried("failed") == {"oom", "timeout", "illegal_access", "wrong_result", "worker_died"}
    assert retried("skipped,unsupported") == {"skipped", "unsupported"}
    with pytest.raises(InvalidValueError):
        retried("failed,oom,")


def test_a_run_goes_on_by_its_own_configuration(tmp_path: Path) -> None:
    begun(tmp_path)
    chosen, _ = asked(tmp_path, "resume=it")
    assert (chosen.config.conf_name, chosen.config.run.name) == ("cpu", "it")
    assert (chosen.config.space.h, chosen.differences) == (64, ())


def test_what_changes_no_measurement_may_change(tmp_path: Path) -> None:
    begun(tmp_path)
    chosen, asked_for = asked(tmp_path, "resume=latest", "rank.top=3", "run.max_failure_share=1", "cluster.max_gpus=1")
    assert chosen.differences == ()
    assert not done(RunStore(tmp_path / "it"), prepare(RunStore(tmp_path / "it"), chosen, asked_for), chosen)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["space.tp=2"], "space.tp: 1 in the run, 2 now"),
        (["timing.max_rounds=50"], "timing.max_rounds: 100 in the run, 50 now"),
        (["timing.l2=hot"], "timing.l2: rotate in the run, hot now"),
        (["conf=cpu"], "space.h: 64 in the run, [256, 512] now"),
    ],
)
def test_another_plan_is_refused_with_what_differs(tmp_path: Path, words: list[str], line: str) -> None:
    store = begun(tmp_path)
    before = store.manifest_path.read_bytes()
    chosen, asked_for = asked(tmp_path, "resume=it", *words)
    with pytest.raises(ResumeError) as caught:
        prepare(RunStore(tmp_path / "it"), chosen, asked_for)
    assert f"\n  {line}\n" in str(caught.value)
    assert "resume_anyway=true" in str(caught.value)
    assert store.manifest_path.read_bytes() == before
    chosen, asked_for = asked(tmp_path, "resume=it", "resume_anyway=true", *words)
    assert prepare(RunStore(tmp_path / "it"), chosen, asked_for).environments == {}
    assert record(store.manifest(), asked_for, chosen)["resumed"][0]["differences"] == list(chosen.differences)


def test_another_version_of_the_protocol_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(begun(tmp_path))
    refused = f"interleaved, version {PROTOCOL_VERSION['interleaved']}, in the run; interleaved, version 99, now"
    monkeypatch.setitem(PROTOCOL_VERSION, "interleaved", 99)
    with pytest.raises(ResumeError, match=refused):
        prepare(RunStore(tmp_path / "it"), *asked(tmp_path, "resume=it"))


def test_a_run_is_done_when_every_bundle_has_ended(tmp_path: Path) -> None:
    store = begun(tmp_path)
    measured(store)
    chosen, asked_for = asked(tmp_path, "resume=it")
    assert done(RunStore(tmp_path / "it"), prepare(RunStore(tmp_path / "it"), chosen, asked_for), chosen)
    store.shard_paths()[0].unlink()
    assert not done(RunStore(tmp_path / "it"), prepare(RunStore(tmp_path / "it"), chosen, asked_for), chosen)


@pytest.mark.parametrize("word", ["cluster.placement=replicate", "cluster.gpu=all"])
def test_of_a_fleet_only_a_finished_run_is_done(tmp_path: Path, word: str) -> None:
    store = begun(tmp_path)
    measured(store)
    chosen, asked_for = asked(tmp_path, "resume=it", word)
    assert not done(RunStore(tmp_path / "it"), prepare(RunStore(tmp_path / "it"), chosen, asked_for), chosen)
    store.update_manifest(status="finished")
    assert done(RunStore(tmp_path / "it"), prepare(RunStore(tmp_path / "it"), chosen, asked_for), chosen)


def test_without_a_manifest_the_arguments_must_make_the_plan_of_the_shards(tmp_path: Path) -> None:
    store = begun(tmp_path)
    measured(store)
    store.manifest_path.unlink()
    with pytest.raises(ResumeError, match="add conf=NAME"):
        asked(tmp_path, "resume=it")
    with pytest.raises(ResumeError, match=r"the plan: [0-9a-f]{16} in the shards, [0-9a-f]{16} by these arguments"):
        prepare(RunStore(tmp_path / "it"), *asked(tmp_path, "resume=it", *WORDS, "space.h=128"))
    chosen, asked_for = asked(tmp_path, "resume=it", *WORDS)
    assert done(RunStore(tmp_path / "it"), prepare(RunStore(tmp_path / "it"), chosen, asked_for), chosen)


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    store = begun(tmp_path)
    torn = store.path / ".manifest.json.123.tmp"
    torn.write_bytes(b"{")
    prepare(RunStore(tmp_path / "it"), *asked(tmp_path, "resume=it"))
    assert not torn.exists()


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(StoreError, match="unknown run 'itt'; did you mean it"):
        asked(tmp_path, "resume=itt")


def test_a_run_in_the_home_directory_itself_is_found_where_it_was_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = begun(tmp_path)
    assert compose("cpu", ["run.dir=~"]).run.dir == str(tmp_path)
    found = wish(["resume=it", "run.dir=~", "run.spool=~"])
    assert found is not None
    chosen = choose(found)
    assert (chosen.config.run.dir, chosen.config.run.spool) == (str(store.path.parent), None)


def test_a_plan_is_no_run_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "conf=cpu", "resume=latest", "retry=failed"]) == 2
    err = capsys.readouterr().err
    assert "argument resume=latest: only a run is resumed: python -m orchestrator resume=RUN" in err
    assert "argument retry=failed: only a run is resumed" in err


def test_cfg_prints_the_runs_own_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = begun(tmp_path)
    before = store.manifest_path.read_bytes()
    assert main([f"run.dir={tmp_path}", "resume=it", "--cfg"]) == 0
    assert "  h: 64\n" in capsys.readouterr().out
    assert store.manifest_path.read_bytes() == before


def test_a_link_means_the_run_that_it_leads_to(tmp_path: Path) -> None:
    meant = begun(tmp_path / "there", "same")
    begun(tmp_path / "here", "same")
    link = tmp_path / "here" / "link"
    link.symlink_to(meant.path)
    chosen, _ = asked(tmp_path, f"resume={link}")
    assert (chosen.config.run.dir, chosen.name) == (str(meant.path.parent), "same")


@pytest.mark.parametrize(
    "facts", [{"config": [1]}, {"config": "x"}, {"conf": 5}, {"overrides": "x"}, {"resumed": 5}, {"seconds": 5}]
)
@pytest.mark.parametrize("verb", ["rank", "status", "resume=it"])
def test_a_manifest_of_wrong_types_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], facts: dict[str, Any], verb: str
) -> None:
    begun(tmp_path, "it").update_manifest(**facts)
    words = [verb, f"run.dir={tmp_path}"] if "=" in verb else [verb, "it", "--dir", str(tmp_path)]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert f"manifest.json is no manifest: {next(iter(facts))} is no " in error
    assert "Traceback" not in error


EDITED = [
    ({"overrides": [1]}, "overrides are not all str"),
    ({"seconds": {"rank": "x"}}, "seconds are not all numbers"),
    ({"config": {"rank": [5]}}, "config.rank is no dict"),
    ({"config": {"rank": {"top": "5"}}}, "config.rank.top is no int >= 1"),
    ({"config": {"rank": {"top": True}}}, "config.rank.top is no int >= 1"),
    ({"config": {"timing": 3}}, "config.timing is no dict"),
    ({"config": {"space": None}}, "config.space is no dict"),
]


@pytest.mark.parametrize(("facts", "message"), EDITED)
@pytest.mark.parametrize("verb", ["rank", "status"])
def test_a_manifest_that_was_edited_wrongly_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], facts: dict[str, Any], message: str, verb: str
) -> None:
    begun(tmp_path, "it").update_manifest(**facts)
    assert main([verb, "it", "--dir", str(tmp_path)]) == 2
    assert f"manifest.json is no manifest: {message}\n" in capsys.readouterr().err


def test_a_manifest_without_all_of_its_space_names_what_is_missing(tmp_path: Path) -> None:
    store = begun(tmp_path, "it")
    config = store.manifest()["config"]
    del config["space"]["roles"]
    store.update_manifest(config=config)
    with pytest.raises(ConfigError, match=r"^manifest\.json: space\.roles is missing$"):
        asked(tmp_path, "resume=it")


def test_a_manifest_nested_beyond_reading_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = begun(tmp_path, "it")
    store.manifest_path.write_text('{"schema_version": 2, "config": ' + "[" * 100_000 + "]" * 100_000 + "}")
    for verb in ("rank", "status"):
        assert main([verb, "it", "--dir", str(tmp_path)]) == 2
        assert main([verb, "--dir", str(tmp_path)]) == 2
    assert "cannot read " in capsys.readouterr().err


def test_a_process_of_an_impossible_number_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(tmp_path, "it").update_manifest(status="running", host=socket.gethostname(), pid=10**30)
    assert main(["status", "it", "--dir", str(tmp_path)]) == 0
    assert "broken off: its process is gone" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["rank", "x" * 5000], ["conf=cpu", "run.dir=" + "/n" * 3000]])
def test_a_path_that_is_too_long_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "File name too long" in error
