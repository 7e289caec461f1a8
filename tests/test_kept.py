"""Who may use a kept Ray, when it ends, and what it must have in common with a command: without Ray."""

import errno
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator import cluster
from orchestrator import likeness as alike
from orchestrator.errors import ClusterError
from orchestrator.keeper import Watch
from orchestrator.keeper import main as keep_ray
from orchestrator.kept import Hold, held, release
from orchestrator.kept_now import kept_now
from orchestrator.kept_place import Place, Ray, Use, locked
from orchestrator.schema import Cluster

RAY = Ray(address="10.0.0.1:6379", token="secret", node="n", like={"python": "3.11"})
LEFT = {"GPU-1": "NVIDIA L4", "GPU-2": "NVIDIA H200"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path / "kept")
    found.make()
    return found


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def over_at(place: Place, clock: Clock, watch: Watch, *moments: float) -> list[bool]:
    found = []
    for clock.now in moments:
        found.append(watch.over())
    return found


def test_what_nobody_uses_ends_after_its_time_and_is_not_found_any_more(place: Place) -> None:
    clock = Clock()
    watch = Watch(place, clock)
    place.tell_ray(RAY)
    place.tell_use(Use(pid=1, clean=True, keep_s=60.0))
    assert over_at(place, clock, watch, 1000.0, 1059.0) == [False, False]
    assert place.ray() == RAY
    assert over_at(place, clock, watch, 1060.0) == [True]
    assert place.ray() is None


def test_use_begins_the_time_anew(place: Place) -> None:
    clock = Clock()
    watch = Watch(place, clock)
    place.tell_use(Use(pid=1, clean=True, keep_s=60.0))
    assert over_at(place, clock, watch, 0.0) == [False]
    with locked(place.lease) as mine:
        assert mine
        assert over_at(place, clock, watch, 59.0, 500.0) == [False, False]
    assert over_at(place, clock, watch, 501.0, 560.0, 561.0) == [False, False, True]


def test_a_holder_that_died_ends_it(place: Place) -> None:
    place.tell_ray(RAY)
    place.tell_use(Use(pid=1))
    watch = Watch(place, Clock())
    with locked(place.lease):
        assert not watch.over()
    assert watch.over()
    assert place.ray() is None


def test_who_asks_for_its_end_keeps_the_lease(place: Place) -> None:
    with locked(place.lease):
        place.tell_use(Use(pid=1, keep_s=0.0))
        assert Watch(place, Clock()).over()


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_place_that_others_may_enter_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(mode)
    with pytest.raises(ClusterError, match="a directory of your own that nobody else may enter"):
        Place(tmp_path / "kept").make()


def test_where_nothing_is_kept_a_plain_command_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with held(Cluster(), Place(tmp_path / "kept")) as hold:
        assert hold is None
    assert release(Place(tmp_path / "kept")) is None
    assert not (tmp_path / "kept").exists()


def test_where_no_temporary_file_can_be_written_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", refuses)
    with pytest.raises(ClusterError, match=r"no directory for temporary files can be written: .*'/tmp'.*; set TMPDIR"):
        Place()


ODD_USE = '{"pid": 1, "devices": {}, "keep_s": "x"}'
ODD_RAY = '{"address": "a:1", "token": null, "node": "n", "like": []}'


@pytest.mark.parametrize("text", ["[]", "4711", ODD_USE, ODD_RAY])
def test_files_that_say_other_things_say_nothing(place: Place, text: str) -> None:
    (place.folder / "use.json").write_text(text)
    (place.folder / "ray.json").write_text(text)
    assert (place.use(), place.ray()) == (None, None)


@pytest.mark.parametrize("name", ["keeper", "lease"])
def test_a_directory_in_place_of_a_lock_is_named(place: Place, name: str) -> None:
    (place.folder / name).mkdir()
    with pytest.raises(ClusterError, match=f"{name}: Is a directory"), locked(place.folder / name):
        pass


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    with pytest.raises(ClusterError, match="must be a directory of your own"):
        Place(tmp_path / "kept").make()


def test_a_keeper_that_cannot_start_ray_says_only_why(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def refuses(wanted: Cluster) -> Iterator[None]:
        if wanted.address == "local":
            raise ClusterError("no Ray here")
        yield

    monkeypatch.setattr(cluster, "connect", refuses)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)}
    try:
        code = keep_ray([str(place.folder), '{"gpu": "cpu", "max_gpus": 1, "like": {}}'])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert (code, capfd.readouterr().err) == (2, "no Ray here\n")


@pytest.mark.parametrize("address", ["head:6379", "local"])
def test_a_ray_of_others_cannot_be_kept(place: Place, address: str) -> None:
    with (
        pytest.raises(ClusterError, match=f"cluster.keep_s=60.*{address}"),
        held(Cluster(address=address, keep_s=60.0), place),
    ):
        pass


def test_a_ray_that_another_command_uses_is_waited_for_and_then_named(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    place.tell_use(Use(pid=4711))
    with locked(place.keeper), locked(place.lease):
        with (
            pytest.raises(ClusterError, match="process 4711 uses the kept Ray"),
            held(Cluster(start_timeout_s=0.2), place),
        ):
            pass
        with pytest.raises(ClusterError, match="process 4711"):
            release(place)


@contextmanager
def keeper(place: Place, ray: Ray) -> Iterator[threading.Thread]:
    """A keeper without Ray: it lives until its Ray is to end."""
    watch, began = Watch(place), threading.Event()

    def keep() -> None:
        with locked(place.keeper, 5.0):
            place.tell_ray(ray)
            place.tell_use(Use(pid=1, clean=True, keep_s=60.0, devices=LEFT))
            began.set()
            while not watch.over():
                time.sleep(0.01)

    thread = threading.Thread(target=keep)
    thread.start()
    began.wait()
    try:
        yield thread
    finally:
        place.tell_use(Use(pid=1, keep_s=0.0))
        thread.join()


@pytest.fixture
def like(monkeypatch: pytest.MonkeyPatch) -> Ray:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return replace(RAY, like=alike.likeness(os.environ))


def test_a_command_that_keeps_workers_leaves_all_as_it_was_found(place: Place, like: Ray) -> None:
    with keeper(place, like) as living:
        with held(Cluster(keep_s=90.0), place) as hold:
            assert hold is not None
            assert hold.ray == like
            assert place.use() == Use(pid=os.getpid())  # not clean: were it to die now, all would end
            hold.kept = {"GPU-2": "NVIDIA H200", "GPU-3": "NVIDIA H200"}
        both = {**LEFT, "GPU-3": "NVIDIA H200"}
        assert place.use() == Use(pid=os.getpid(), clean=True, keep_s=90.0, devices=both)
        assert living.is_alive()
        released = release(place)
        assert released is not None
        assert released.devices == both
        living.join(5.0)
        assert not living.is_alive()


@pytest.mark.parametrize(("keep_s", "kept"), [(0.0, LEFT), (90.0, {})])
def test_a_command_that_keeps_nothing_ends_what_it_found(
    place: Place, like: Ray, keep_s: float, kept: dict[str, str]
) -> None:
    with keeper(place, like) as living:
        with held(Cluster(keep_s=keep_s), place) as hold:
            assert hold is not None
            hold.kept = kept
        assert not place.kept
        living.join(5.0)


def fail(hold: Hold | None) -> None:
    assert hold is not None
    hold.kept = dict(LEFT)
    raise ZeroDivisionError


def test_a_fault_of_a_command_ends_what_it_used(place: Place, like: Ray) -> None:
    with keeper(place, like):
        with pytest.raises(ZeroDivisionError), held(Cluster(keep_s=90.0), place) as hold:
            fail(hold)
        assert not place.kept


def test_what_is_kept_is_told_to_who_only_looks(place: Place, like: Ray) -> None:
    assert kept_now(Cluster(), place) is None
    with keeper(place, like) as living:
        found = kept_now(Cluster(), place)
        assert found is not None
        assert (found.pid, found.devices, found.taken) == (1, LEFT, True)
        assert found.until == found.since + timedelta(seconds=60)
        assert abs((datetime.now(UTC) - found.since).total_seconds()) < 60
        elsewhere = kept_now(Cluster(address="local"), place)
        assert elsewhere == replace(found, taken=False)
        with held(Cluster(keep_s=60.0), place) as hold:
            assert hold is not None
            hold.kept = dict(LEFT)
            used = kept_now(Cluster(), place)
            assert used is not None
            assert (used.pid, used.until, used.devices) == (os.getpid(), None, {})
        assert living.is_alive()  # nothing was locked for it
    assert kept_now(Cluster(), place) is None


@pytest.mark.parametrize("said", ["{}", '{"pid": 1, "devices": ["L4"]}', '{"pid": 1, "devices": {}, "new": 1}'])
def test_what_another_version_says_of_its_use_is_not_believed(place: Place, said: str) -> None:
    (place.folder / "use.json").write_text(said)
    (place.folder / "ray.json").write_text(said)
    assert (place.use(), place.ray()) == (None, None)
    with locked(place.keeper):
        assert kept_now(Cluster(), place) is None
    assert Watch(place, Clock()).over()


def test_what_an_unlike_command_has_left_is_ended_and_not_used(
    place: Place, like: Ray, capsys: pytest.CaptureFixture[str]
) -> None:
    unlike = replace(like, like={**like.like, "torch": "0.0", "environment": "another"})
    with keeper(place, unlike), held(Cluster(), place) as hold:
        assert hold is None
        assert not place.kept
        with locked(place.lease) as free:
            assert free  # nobody is kept from what there is not
    assert "the kept Ray and its workers are ended: torch, environment differ" in capsys.readouterr().err


def test_versions_code_and_what_devices_are_seen_must_be_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = alike.likeness(os.environ)
    assert alike.unlike(here, alike.likeness({**os.environ, "PWD": "/elsewhere", "SHLVL": "7"})) == []
    assert alike.unlike(here, alike.likeness({**os.environ, "CUDA_VISIBLE_DEVICES": "7"})) == ["environment"]
    monkeypatch.setattr(alike, "_version", lambda name: "0.0" if name == "torch" else here[name])
    assert alike.unlike(here, alike.likeness(os.environ)) == ["torch"]
    (tmp_path / "module.py").write_text("")
    monkeypatch.setattr("tasks.__path__", [str(tmp_path)])
    before = alike.likeness(os.environ)
    (tmp_path / "module.py").write_text("changed = True\n")
    assert alike.unlike(before, alike.likeness(os.environ)) == ["code"]
