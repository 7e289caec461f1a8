import dataclasses
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import config
from orchestrator.axis import expand
from orchestrator.catalogue import family_or_key
from orchestrator.config import compose, conf_names, keys, to_dict, to_yaml
from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.expression import Where
from orchestrator.schema import Config, _timing_metadata, schema_keys
from tasks.settings import Timing

SWEEPS = ["a100", "auto", "b200", "cluster", "cpu", "h100", "h200", "l40s", "mi300x", "v100"]


def problems(conf: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        compose(conf, overrides)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return [str(problem) for problem in caught.value.problems]


def user_file(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, "utf-8")
    return str(path)


def nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    keys = st.sampled_from(["start", "stop", "step", "ratio", "distance", "h", "x"])
    return st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)


def test_the_ready_made_sweeps() -> None:
    assert conf_names() == SWEEPS


def test_the_schema_keys_are_frozen() -> None:
    """A key that goes or changes its name breaks users' files: change this list on purpose only."""
    assert list(schema_keys()) == [
        *(f"space.{name}" for name in ("roles", "h", "tp", "batch", "seq", "dtype", "d_ff", "around", "pass")),
        *(f"space.{name}" for name in ("a", "kv", "head_dim", "v", "v_multiple", "experts", "topk", "ep")),
        *(f"space.{name}" for name in ("expert_d_ff", "params_budget", "layers", "other_weights", "model", "where")),
        *(f"timing.{name}" for name in ("protocol", "l2", "power", "min_rounds", "max_rounds", "max_seconds")),
        *(f"timing.{name}" for name in ("tie_pct", "race_pct", "confidence", "lead_calls", "visit_us")),
        *(f"timing.{name}" for name in ("soak_min_s", "soak_max_s", "warmup_s", "seed", "redo_throttled", "goal")),
        *(f"cluster.{name}" for name in ("gpu", "address", "start_timeout_s", "placement", "canary_every", "max_gpus")),
        *(f"cluster.{name}" for name in ("fallback", "keep_s", "reference_gpu")),
        *(f"run.{name}" for name in ("dir", "name", "max_failure_share", "least_deadline_s")),
        *(f"run.{name}" for name in ("spool", "upload_timeout_s", "kernels")),
        "rank.top",
    ]


def test_every_default_obeys_its_own_rule() -> None:
    for key in schema_keys().values():
        if not key.name.startswith("space.") or key.name == "space.where":
            assert key.rule.check(key.default) == key.default
        assert key.help


def test_every_timing_field_is_described_and_nothing_else() -> None:
    assert list(_timing_metadata()) == [part.name for part in dataclasses.fields(Timing)]


def test_timing_defaults_come_from_the_tasks() -> None:
    assert compose("a100").timing == Timing()


@pytest.mark.parametrize("name", [name for name in SWEEPS if name not in ("auto", "cluster", "cpu")])
def test_a_gpu_sweep_measures_the_default_space_on_its_own_family(name: str) -> None:
    sweep = compose(name)
    assert sweep.conf_name == name
    assert sweep.space.roles == ["seed_bmm", "mlp"]
    assert expand(sweep.space.h) == (4096, 8192)
    assert expand(sweep.space.tp) == (1, 2, 4, 8)
    assert (sweep.space.batch, sweep.space.seq, sweep.space.dtype) == (4, 2048, ["fp16"])
    assert sweep.space.d_ff == {"ratio": "8/3", "distance": 100, "step": 4}
    assert sweep.cluster.gpu == name
    assert sweep.cluster.reference_gpu in {spec.key for spec in family_or_key(name)}


def test_auto_falls_back_to_the_cpu_sweep() -> None:
    assert compose("auto").cluster.gpu == "auto"
    assert compose("auto").cluster.fallback == "cpu"
    assert compose("cpu").cluster.gpu == "cpu"


def test_the_cpu_sweep_is_small() -> None:
    cpu = compose("cpu")
    assert cpu.space.dtype == ["fp32"]
    assert (cpu.timing.soak_max_s, cpu.timing.warmup_s) == (0, 0)
    assert max(expand(cpu.space.h)) <= 512


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("space.h=[4096,8192]", "h", [4096, 8192]),
        ("space.tp=8", "tp", 8),
        ("space.tp=1,2,4", "tp", [1, 2, 4]),
        ("space.tp=1, 2, 4", "tp", [1, 2, 4]),
        ("space.batch=1_024", "batch", 1024),
        ("space.h=1_024,2_048", "h", [1024, 2048]),
        ("space.h={start: 4096, stop: 16384, step: 1024}", "h", {"start": 4096, "stop": 16384, "step": 1024}),
        ("space.d_ff={ratio: 8/3, distance: 20, step: 8}", "d_ff", {"ratio": "8/3", "distance": 20, "step": 8}),
        ("space.d_ff.distance=50", "d_ff", {"ratio": "8/3", "distance": 50, "step": 4}),
        ("space.d_ff.ratio=3.5", "d_ff", {"ratio": 3.5, "distance": 100, "step": 4}),
        ("space.d_ff={start: 64, stop: 128}", "d_ff", {"start": 64, "stop": 128}),
        ("space.d_ff=10944,11008", "d_ff", [10944, 11008]),
        ("space.roles=mlp", "roles", ["mlp"]),
        ("space.roles=mlp,seed_bmm,mlp", "roles", ["mlp", "seed_bmm"]),
        ("space.dtype=bf16", "dtype", ["bf16"]),
        ("space.where=d_ff % (64*tp) == 0", "where", "d_ff % (64*tp) == 0"),
        ("space.where='h in [4096]'", "where", "h in [4096]"),
        ("space.where=", "where", ""),
        ("space={h: 64, tp: 2}", "h", 64),
        (" space.h = 128", "h", 128),
    ],
)
def test_what_an_argument_sets(override: str, key: str, value: object) -> None:
    assert getattr(compose("a100", [override]).space, key) == value


def test_a_text_is_taken_as_it_stands() -> None:
    made = compose("a100", ["run.name=1e6", "run.dir=yes", "cluster.address=10.0.0.1:6379"])
    assert (made.run.name, made.run.dir, made.cluster.address) == ("1e6", "yes", "10.0.0.1:6379")
    assert compose("a100", ["run.name=x", "run.name=null"]).run.name is None


def test_numbers_keep_their_type() -> None:
    timing = compose("a100", ["timing.max_seconds=3", "timing.tie_pct=1e-1", "timing.lead_calls=0"]).timing
    assert (timing.max_seconds, timing.tie_pct, timing.lead_calls) == (3.0, 0.1, 0)
    assert isinstance(timing.max_seconds, float)


def test_a_later_override_wins_and_all_are_recorded() -> None:
    made = compose("a100", ["space.tp=x", "space.tp=2"])
    assert made.space.tp == 2
    assert made.overrides == ("space.tp=x", "space.tp=2")


def test_a_users_own_file_starts_from_the_base(tmp_path: Path) -> None:
    path = user_file(tmp_path, "space:\n  h: 1024\n  # tp as in the base\ncluster:\n  # nothing\nrank: {top: 3}\n")
    made = compose(path)
    assert (made.conf_name, made.space.h, made.space.tp, made.rank.top) == ("mine", 1024, [1, 2, 4, 8], 3)


def test_an_empty_file_is_the_base(tmp_path: Path) -> None:
    assert compose(user_file(tmp_path, "")).space == compose("h200").space


def test_one_key_may_interpolate_another(tmp_path: Path) -> None:
    path = user_file(
        tmp_path, "space: {h: [64, 128], seq: '${space.h}'}\nrun: {dir: 'out/${rank.top}'}\nrank: {top: 2}\n"
    )
    made = compose(path, ["run.name=on-${cluster.placement}"])  # which no file sets
    assert (made.space.seq, made.run.dir, made.run.name) == ([64, 128], "out/2", "on-split")


def test_a_directory_may_begin_with_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    path = user_file(tmp_path, "run: {dir: ~/runs, spool: '~'}\n")
    assert (compose(path).run.dir, compose(path).run.spool) == ("/home/me/runs", "/home/me")
    assert compose("cpu", ["run.dir=s3://bucket//~/a"]).run.dir == "s3://bucket//~/a"


@pytest.mark.parametrize("name", SWEEPS)
def test_the_printed_configuration_reads_back(name: str, tmp_path: Path) -> None:
    made = compose(name, ["space.where=h > 2 and d_ff % 8 == 0", "run.name=yes"])
    assert to_dict(compose(user_file(tmp_path, to_yaml(made)))) == to_dict(made)


def test_keys_list_every_key_with_type_default_and_help() -> None:
    table = {name: (takes, default, text) for name, takes, default, text in keys()}
    assert list(table) == list(schema_keys())
    assert table["timing.protocol"][:2] == ("interleaved|seed|sequential", "interleaved")
    assert table["space.d_ff"][1] == "{ratio: 8/3, distance: 100, step: 4}"
    assert table["space.roles"][0] == "a list of role names"
    assert table["space.pass"][:2] == ("a list of fwd|bwd", "[fwd]")
    assert table["run.name"][:2] == ("a text or null", "null")


WRONG_ARGUMENTS = [
    ("space.tp=x", "argument 'space.tp=x': space.tp: 'x' is not a whole number"),
    ("space.h=1e6", "space.h: 1000000.0 (a decimal number) is not a whole number; write 1000000"),
    ("rank.top=2.0", "rank.top: 2.0 (a decimal number) is not a whole number; write 2"),
    ("space.h=[1,2", "space.h: '[1,2' is not valid YAML: "),
    ("space.h=1,,2", "space.h: '[1,,2]' is not valid YAML"),
    ("space.h=", "space.h: no value after '='; give a whole number, a list"),
    ("rank.top=", "rank.top: no value after '='; give a whole number"),
    ("run.dir=", "run.dir: empty; give a directory"),
    ("run.name=", "run.name: empty; give a text or null"),
    ("timing.protocol=", "unknown protocol ''"),
    ("=3", "argument '=3': has no key before '='"),
    ("space.h", "argument 'space.h': is not of the form key=value"),
    ("h100", "did you mean conf=h100?"),
    ("space.hh=4", "unknown key 'space.hh'; did you mean space.h"),
    ("h=4", "unknown key 'h'; did you mean space.h?"),
    ("timing.min_round=4", "did you mean timing.min_rounds"),
    ("protcol=seed", "did you mean timing.protocol?"),
    ("zzz.qqq=1", "unknown key 'zzz.qqq'; the sections are space, timing, cluster, run, rank"),
    ("space.h.stat=4", "unknown key 'space.h.stat'"),
    ("space.h.start=4", "space.h is [4096, 8192], which has no start; give space.h as a whole"),
    ("space.d_ff.start=4", "space.d_ff: unknown part 'ratio'"),
    ("space.tp=true", "space.tp: true (a boolean) is not a whole number"),
    ("space.tp=[1,yes]", "space.tp: true (a boolean) is not a whole number"),
    ("space.tp=null", "space.tp: no value; give a whole number"),
    ("space.tp=[]", "space.tp: an empty list; give at least one value"),
    ("space.tp=0", "space.tp: 0 is too small; it must be >= 1"),
    ("space.tp=-1", "space.tp: -1 is too small"),
    ("space.h=010", "'010' is an octal or base-60 number to YAML; write a plain decimal number"),
    ("space.h=!!bool x", "space.h: has a value that is not what its YAML tag says"),
    ("space.h=1:30", "'1:30' is an octal or base-60 number"),
    ("space.h={start: 8192, stop: 4096, step: 1}", "start <= stop must hold, but got start=8192, stop=4096"),
    ("space.h={start: 1, stop: 4, step: 0}", "space.h: step: 0 is too small"),
    ("space.h={start: 1}", "{start, stop, step, baseline} lacks stop"),
    ("space.h={start:4096}", "'start:4096' is no part and its value: a space must follow the colon"),
    ("space.d_ff={ratio:8/3,distance:8,step:4}", "a space must follow the colon, as in {ratio: 8/3}"),
    ("space.d_ff={ratio=8/3, distance=8, step=4}", "did you mean ratio? there are: ratio, distance, span, step"),
    ("space.h={start: 1, stop: 2_000_000_000}", "2000000000 values; at most 1000000 fit on one axis"),
    ("space.h={start: 1, stop: 1_000_000_000_000}", "1000000000000 is too large; it must be <= 2147483647"),
    ("space.d_ff={ratio: 8/3, distance: 100}", "{ratio, distance, step} lacks step"),
    ("space.d_ff={ratio: 8/0, distance: 1, step: 1}", "ratio: '8/0' divides by zero"),
    ("space.d_ff={ratio: 1/9999, distance: 1, step: 1}", "space.d_ff: ratio 1/9999 of h=4096 is less than 1"),
    (
        "space.expert_d_ff={ratio: 1/9999, distance: 1, step: 1}",
        "space.expert_d_ff: ratio 1/9999 of h=4096 is less than 1",
    ),
    ("space.h={start: 1, stop: 1_000_000}", "points; at most 10000000"),
    ("space.expert_d_ff={start: 1, stop: 1_000_000}", "points; at most 10000000"),
    ("space.roles=mlp_dwn", "unknown role 'mlp_dwn'; did you mean mlp_down"),
    ("space.roles=[]", "space.roles: [] is no list of names; there are: seed_bmm, mlp_up"),
    ("space.roles=3", "3 is no list of names"),
    ("space.dtype=fp61,int4", "unknown dtype 'fp61'; did you mean fp16? there are: fp16, bf16, fp32, tf32, "),
    ("timing.protocol=sed", "unknown protocol 'sed'; did you mean seed? there are: interleaved, seed, sequential"),
    ("timing.l2=cold", "unknown L2 regime 'cold'; there are: rotate, hot, flush"),
    ("timing.power=Burst", "unknown power regime 'Burst'; did you mean burst?"),
    ("timing.confidence=1", "timing.confidence: 0 < value < 1 must hold, but got 1"),
    ("timing.confidence=.nan", "timing.confidence: nan (a decimal number) is not a number"),
    ("timing.tie_pct=-0.1", "timing.tie_pct: 0 <= value < 100 must hold, but got -0.1"),
    ("timing.max_seconds=0", "timing.max_seconds: 0 < value <= 86400 must hold"),
    (f"timing.max_seconds={'9' * 400}", "is not a number"),
    ("timing.max_seconds=fast", "timing.max_seconds: 'fast' is not a number"),
    ("timing.max_seconds=true", "timing.max_seconds: true (a boolean) is not a number"),
    ("timing.min_rounds=99999", "timing.min_rounds <= timing.max_rounds must hold, but got 99999 and "),
    ("timing.soak_min_s=40", "timing.soak_min_s <= timing.soak_max_s must hold, but got 40.0 and 30.0"),
    ("timing.seed=-1", "timing.seed: -1 is too small; it must be >= 0"),
    ("timing=3", "timing: 3 is no mapping; the section has timing.protocol"),
    ("cluster.gpu=h10", "unknown GPU 'h10'; did you mean h100"),
    ("cluster.fallback=gpu", "unknown sweep 'gpu'; "),
    ("cluster.reference_gpu=any", "unknown GPU 'any'"),
    ("cluster.max_gpus=0", "cluster.max_gpus: 0 is too small"),
    ("run.kernels=1", "run.kernels: 1 is neither true nor false"),
    ("run.kernels=", "run.kernels: no value after '='; give true|false"),
    ("run.name=../x", "'../x' cannot name a run"),
    ("run.name=..", "'..' cannot name a run"),
    ("run.name=latest", "'latest' means the last run: give this one another name"),
    ("run.dir=a\nb", "has a line break or control character"),
    ("run.name=???", "run.name: '???' stands for a value that is missing; give it, or leave the key out"),
    ("timing.max_seconds=???", "timing.max_seconds: '???' stands for a value that is missing"),
    ("space.h=???", "space.h: '???' stands for a value that is missing"),
    ("run.dir=\\${rank.top}", "run.dir: '${rank.top}' has '${', which begins an interpolation and can be in no value"),
    ("space.where=h == \\${x}", "space.where: 'h == ${x}' has '${'"),
    ("space.d_ff={ratio: '\\${x}', distance: 8, step: 4}", "space.d_ff: ratio: '${x}' is no number"),
    ("run.dir=${nothing}", "run.dir: Interpolation key 'nothing' not found"),
    ("space.where=d_f > 3", "space.where: 'd_f' at column 1 is an unknown name; did you mean d_ff?"),
    ("space.where=h = 3", "space.where: 'h = 3' is no condition at column 3"),
    ("space.where=__import__('os') == 1", "is not allowed; use h, tp, batch, seq, d_ff"),
    ("space.h=!!python/name:os.system", "space.h: "),
    ("space.h=*x", "space.h: '*x' is not valid YAML: found undefined alias"),
    ("space.h=" + "9" * 5000, "space.h: "),
    ("space.h=" + "[" * 150 + "]" * 150, "space.h: "),
    ("space.h=" + "[" * 5000, "space.h: "),
    ("space.h=!!int x", "space.h: "),
    ("run.name=${", "run.name: "),
    ("space.h=${space.h}", "space.h: "),
    ("conf=h100", "conf is given once and not in a file"),
    ("space.model=llama-3-8b", "space.model is but the name that model= leaves; write model=llama-3-8b"),
]


@pytest.mark.parametrize(("argument", "message"), WRONG_ARGUMENTS, ids=[wrong[:40] for wrong, _ in WRONG_ARGUMENTS])
def test_a_wrong_argument_is_named_with_what_is_right(argument: str, message: str) -> None:
    (problem,) = problems("a100", argument)
    assert message in problem
    assert problem.startswith("argument '")


WRONG_FILES = [
    ("space: {h: [1,2}\n", "line 1, column 16: "),
    ("space:\n  h: 4\n tp: 2\n", "line 3, column 2: "),
    ("space:\n\th: 4\n", "line 2, column 1: found character '\\t' that cannot start any token"),
    ("- h\n- tp\n", "is not a mapping of sections"),
    ("just words\n", "is not a mapping of sections"),
    ("space: 3\n", "space: 3 is no mapping; the section has space.roles, space.h"),
    ("space: {h: 1}\nspace: {h: 2}\n", "found duplicate key space"),
    ("space: {heads: 1}\n", "unknown key 'space.heads'; did you mean space."),
    ("extra: 1\n", "unknown key 'extra'; the sections are"),
    ("1: 2\n", "unknown key '1'"),
    ("model: llama-3-8b\n", "model is given as an argument and not in a file: model=NAME"),
    ("space:\n  seq: 010\n", "line 2: '010' is an octal or base-60 number to YAML"),
    ("space: {h: true}\n", "space.h: true (a boolean) is not a whole number"),
    ("space: {h: null}\n", "space.h: no value; give a whole number"),
    ("run: {name: 2026}\n", "run.name: 2026 is not a text; put it in quotes"),
    ("a: 1\n---\nb: 2\n", "line 2, column 1: but found another document"),
    ("space: {h: 1e3}\n", "space.h: 1000.0 (a decimal number) is not a whole number; write 1000"),
    ("space: &s {h: *s}\n", "recursive"),
    ("run: {dir: '${x'}\n", "input"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_FILES)
def test_a_wrong_file_is_named_with_the_place(text: str, message: str, tmp_path: Path) -> None:
    path = user_file(tmp_path, text)
    (problem,) = problems(path)
    assert problem.startswith(f"{path}: ")
    assert message in problem


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "there is no such file; the ready-made sweeps are: a100, auto" in problems("nowhere/x.yaml")[0]
    assert "cannot be read: Is a directory" in problems(f"{tmp_path}/")[0]
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00space")
    assert "it is not a UTF-8 text" in problems(str(binary))[0]
    assert "cannot be read" in problems("a\x00.yaml")[0]


@given(st.sampled_from([*schema_keys(), "space.h.start", "space.d_ff.ratio", "space", "x"]), st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_any_argument_is_either_taken_or_explained(key: str, text: str) -> None:
    try:
        assert isinstance(compose("a100", [f"{key}={text}"]), Config)
    except ConfigError as error:
        assert all(problem.origin.startswith("argument '") for problem in error.problems)  # noqa: PT017


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), nested, max_leaves=6)
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_a_file_is_either_taken_or_explained(tmp_path: Path, value: object) -> None:
    for key in ("space.h", "space.d_ff", "space.roles", "timing.tie_pct", "run.name", "space"):
        path = user_file(tmp_path, json.dumps({key: value}))
        try:
            assert isinstance(compose(path), Config)
        except ConfigError as error:
            assert all(problem.origin == path for problem in error.problems)  # noqa: PT017


def test_an_unknown_sweep_lists_those_there_are() -> None:
    (problem,) = problems("h10")
    assert problem.startswith("argument 'conf=h10': unknown sweep 'h10'; did you mean h100")
    assert ", ".join(SWEEPS) in problem
    assert "unknown sweep 'base'" in problems("base")[0]
    assert "unknown sweep ''" in problems("")[0]


def test_all_problems_of_file_and_arguments_are_reported_at_once(tmp_path: Path) -> None:
    path = user_file(tmp_path, "space: {h: -1, wide: 2}\ntiming: {max_rounds: 5, min_rounds: 10}\n")
    found = problems(path, "space.tp=x", "nope", "=1", "timing.confidence=2", "space.where=q", "timing.l2=[")
    text = "\n".join(found)
    assert len(found) == 9
    for origin, fragment in [
        (path, "space.h: -1 is too small"),
        (path, "unknown key 'space.wide'"),
        (path, "timing.min_rounds <= timing.max_rounds must hold, but got 10 and 5"),
        ("argument 'space.tp=x'", "space.tp: 'x'"),
        ("argument 'nope'", "key=value"),
        ("argument '=1'", "no key"),
        ("argument 'timing.confidence=2'", "0 < value < 1"),
        ("argument 'space.where=q'", "unknown name"),
        ("argument 'timing.l2=['", "unknown L2 regime '['"),
    ]:
        assert re.search(f"^{re.escape(origin)}: .*{re.escape(fragment)}", text, re.MULTILINE), (origin, fragment)


def test_a_cross_check_names_every_argument_concerned() -> None:
    (problem,) = problems("a100", "timing.min_rounds=9", "timing.max_rounds=8")
    assert problem.startswith("argument 'timing.min_rounds=9' and argument 'timing.max_rounds=8': ")


def test_a_config_error_is_a_usage_error() -> None:
    assert issubclass(ConfigError, OrchestratorError)
    assert ConfigError([]).exit_code == 2


def test_a_huge_space_is_refused_at_once() -> None:
    begin = time.perf_counter()
    (problem,) = problems(
        "a100", *(f"space.{axis}={{start: 1, stop: 1_000_000}}" for axis in ("h", "tp", "batch", "seq"))
    )
    assert "points; at most 10000000 are planned at once" in problem
    assert time.perf_counter() - begin < 1


def test_a_long_argument_is_cut_in_the_message() -> None:
    (problem,) = problems("a100", "space.h=" + "x" * 10_000)
    assert len(problem) < 400


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from orchestrator.config import compose; compose('a100', ['space.tp=1,2']);"
        "sys.exit(bool({'torch', 'ray', 'pyarrow', 'numpy', 'rich'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(config.__file__).parents[1]).returncode == 0
    )


def test_the_condition_is_kept_as_text() -> None:
    made = compose("a100", ["space.where= d_ff % 8 == 0 "])
    assert isinstance(made, Config)
    assert Where(made.space.where).evaluate(h=1, tp=1, batch=1, seq=None, d_ff=16)
