"""A run sent to its store while it is written: order, outages, and what is left at the end."""

import threading
import time
from pathlib import Path

import pytest

from orchestrator.address import Address
from orchestrator.errors import StoreError
from orchestrator.mirror import Mirror
from orchestrator.patience import Backoff, each, within
from orchestrator.remote import Remote
from orchestrator.spool import Origin
from tests.bucket import KEYS, Bucket

SOON = Backoff(first_s=0.05, most_s=0.2)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


class Recorder(Remote):
    """A real store, with the order of what arrived."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.arrived: list[tuple[str, bytes]] = []
        self.gate = threading.Event()
        self.gate.set()

    def write(self, name: str, content: bytes) -> None:
        self.gate.wait()
        super().write(name, content)
        self.arrived.append((name, content))


def written(run: Path, name: str, content: bytes = b"x") -> Path:
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_bytes(content)
    return run / name


def spooled(run: Path, address: Address) -> Path:
    run.mkdir()
    Origin(uri=str(address)).write(run)
    return run


def test_files_arrive_in_the_order_of_writing_and_a_rewritten_one_once_at_its_last_place(tmp_path: Path) -> None:
    address = Address.parse(f"file://{tmp_path}/there")
    run, remote = spooled(tmp_path / "run", address), Recorder(address)
    mirror = Mirror(run, remote)
    mirror.add(written(run, "manifest.json", b"start"))
    assert mirror.flush(10) is None
    remote.gate.clear()
    mirror.add(written(run, "manifest.json", b"running"))
    mirror.add(written(run, "shards/1.parquet"))
    mirror.add(written(run, "shards/2.parquet"))
    mirror.add(written(run, "ranking.parquet"))
    mirror.add(written(run, "manifest.json", b"end"))
    remote.gate.set()
    assert mirror.flush(10) is None
    order = [name for name, _ in remote.arrived]
    assert order[-4:] == ["shards/1.parquet", "shards/2.parquet", "ranking.parquet", "manifest.json"]
    assert remote.arrived[-1] == ("manifest.json", b"end")
    assert mirror.sent() == {"manifest.json", "shards/1.parquet", "shards/2.parquet", "ranking.parquet"}
    mirror.close()


def test_a_writer_never_waits_for_a_store_that_hangs(tmp_path: Path) -> None:
    address = Address.parse(f"file://{tmp_path}/there")
    run, remote = spooled(tmp_path / "run", address), Recorder(address)
    remote.gate.clear()
    mirror = Mirror(run, remote)
    paths = [written(run, f"{i}.parquet") for i in range(1000)]
    start = time.monotonic()
    for path in paths:
        mirror.add(path)
    assert time.monotonic() - start < 0.5
    left = mirror.flush(0.2)
    assert left is not None
    assert left.files == 1000
    mirror.close()
    remote.gate.set()


def test_a_store_that_is_away_for_a_while_gets_everything_once_and_is_told_of_once(
    tmp_path: Path, bucket: Bucket
) -> None:
    address = Address.parse(bucket.uri("away"))
    run, remote, told = spooled(tmp_path / "run", address), Recorder(address), list[str]()
    mirror = Mirror(run, remote, backoff=SOON, say=told.append)
    names = [f"shards/{i}.parquet" for i in range(20)]
    for name in names[:5]:
        mirror.add(written(run, name, name.encode()))
    assert mirror.flush(10) is None
    bucket.down()
    for name in names[5:]:
        mirror.add(written(run, name, name.encode()))
    left = mirror.flush(1.5)
    assert left is not None
    assert (left.files, "it does not answer" in left.reason) == (15, True)
    bucket.up()
    assert mirror.flush(10) is None
    mirror.close()
    assert bucket.contents("away") == {name: name.encode() for name in names}
    assert [name for name, _ in remote.arrived] == names
    assert [text.rpartition(";")[2] or text for text in told] == [
        f" the sweep goes on, its files wait in {run}",
        f"{address} takes files again",
    ]


def test_the_wait_lasts_as_long_as_files_get_through(tmp_path: Path) -> None:
    class Slow(Remote):
        def write(self, name: str, content: bytes) -> None:
            time.sleep(0.15)
            super().write(name, content)

    address = Address.parse(f"file://{tmp_path}/there")
    run = spooled(tmp_path / "run", address)
    mirror = Mirror(run, Slow(address))
    for i in range(8):
        mirror.add(written(run, f"{i}.parquet"))
    assert mirror.flush(0.6) is None  # 1.2 s in all, 0.15 s a file
    mirror.close()


def test_files_of_a_discarded_run_are_not_waited_for(tmp_path: Path) -> None:
    address = Address.parse(f"file://{tmp_path}/there")
    mirror = Mirror(spooled(tmp_path / "run", address), Remote(address))
    mirror.add(tmp_path / "run" / "gone.parquet")
    assert mirror.flush(5) is None
    assert mirror.sent() == frozenset()
    mirror.close()


def test_pauses_double_up_to_a_limit_and_vary() -> None:
    backoff = Backoff(first_s=1, most_s=8)
    for failures, longest in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (5000, 8)):
        pauses = [backoff.pause_s(failures) for _ in range(50)]
        assert longest / 2 <= min(pauses) < max(pauses) <= longest


def test_a_call_that_hangs_is_left_in_time_and_errors_come_through() -> None:
    with pytest.raises(StoreError, match=r"s3://b: it does not answer within 0\.1 s"):
        within(0.1, "s3://b", lambda: time.sleep(1))
    assert within(1, "", lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        within(1, "", lambda: 1 // 0)


def test_the_first_error_drops_the_calls_that_have_not_begun() -> None:
    begun: list[int] = []

    def call(number: int) -> int:
        begun.append(number)
        time.sleep(0.01)
        return 10 // number

    with pytest.raises(ZeroDivisionError):
        each(call, range(500))
    assert len(begun) < 100
    assert each(call, (1, 2, 5)) == [10, 5, 2]
