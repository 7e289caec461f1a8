"""A directory in a store: what is there, and files that appear whole or not at all."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pytest

from orchestrator.address import Address
from orchestrator.errors import StoreError
from orchestrator.patience import each
from orchestrator.remote import Remote, is_visible
from tests.bucket import KEYS, Bucket, free_port


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["s3", "file", "memory"])
def remote(request: pytest.FixtureRequest, tmp_path: Path, bucket: Bucket) -> Remote:
    """A directory in an object store, on a disk, and in a store that only fsspec knows."""
    name = request.node.name.replace("[", "-").rstrip("]")
    uris = {"s3": bucket.uri(name), "file": f"file://{tmp_path}/there", "memory": f"memory://there/{name}"}
    return Remote(Address.parse(uris[request.param]))


def test_what_is_written_is_listed_and_read(remote: Remote) -> None:
    remote.require()
    assert remote.sizes() == {}
    assert remote.directories() == []
    remote.write("run/shards/gpu=a/x+1.parquet", b"12345")
    remote.write("run/manifest.json", b"{}")
    remote.write("run/manifest.json", b"{ }")
    remote.write("other/manifest.json", b"")
    assert remote.sizes() == {"run/manifest.json": 3, "run/shards/gpu=a/x+1.parquet": 5, "other/manifest.json": 0}
    assert remote.directories() == ["other", "run"]
    assert remote.read("run/manifest.json") == b"{ }"
    remote.remove("run/manifest.json")
    assert set(remote.sizes()) == {"run/shards/gpu=a/x+1.parquet", "other/manifest.json"}


def test_a_file_that_is_not_there_is_named(remote: Remote) -> None:
    with pytest.raises(StoreError, match=r"there.*: run/manifest\.json: "):
        remote.read("run/manifest.json")


def test_more_files_are_listed_than_a_store_tells_at_once(bucket: Bucket) -> None:
    remote = Remote(Address.parse(bucket.uri("many")))
    names = {f"shards/{i:04}.parquet" for i in range(1100)}
    each(lambda name: remote.write(name, b"x"), names)
    assert set(remote.sizes()) == names


def test_hidden_files_are_no_part_of_a_run_and_torn_ones_are_swept(tmp_path: Path) -> None:
    remote = Remote(Address.parse(f"file://{tmp_path}"))
    (tmp_path / ".a.parquet.17.tmp").write_bytes(b"half")
    (tmp_path / ".keep").write_bytes(b"")
    remote.write("a.parquet", b"whole")
    assert remote.sizes() == {"a.parquet": 5}
    remote.sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".keep", "a.parquet"]


def test_a_store_that_renames_leaves_nothing_of_a_write_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote(Address.parse("memory://renamed"))
    memory = fsspec.filesystem("memory")
    remote.write("x", b"old")

    def full(*arguments: object, **options: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(type(memory), "mv", full)
    with pytest.raises(StoreError, match="no space"):
        remote.write("x", b"new")
    monkeypatch.undo()
    assert remote.read("x") == b"old"
    assert memory.find("/renamed") == ["/renamed/x"]


WRITER = """
import sys
from pathlib import Path
from orchestrator.address import Address
from orchestrator.remote import Remote
remote = Remote(Address.parse(sys.argv[1]))
remote.write("first", b"1")
print("ready", flush=True)
content = bytes(64 << 20)
while True:
    remote.write("big", content)
    remote.remove("big")
"""


@pytest.mark.parametrize("kind", ["s3", "file"])
def test_a_killed_upload_leaves_no_half_file(tmp_path: Path, bucket: Bucket, kind: str) -> None:
    uri = bucket.uri("killed") if kind == "s3" else f"file://{tmp_path}/there"
    remote, there = Remote(Address.parse(uri)), tmp_path / "there"
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, uri], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            before = bucket.unfinished() if kind == "s3" else None
            deadline = time.monotonic() + 30
            while not ((bucket.unfinished() != before) if before is not None else [*there.glob(".big.*")]):
                assert time.monotonic() < deadline, "nothing is under way"
            writer.send_signal(signal.SIGKILL)
        assert remote.sizes() in ({"first": 1}, {"first": 1, "big": 64 << 20})


def test_a_wrong_bucket_is_said_to_be_missing(bucket: Bucket) -> None:
    with pytest.raises(StoreError, match="there is no bucket 'nowhere'"):
        Remote(Address.parse(bucket.uri("runs", bucket="nowhere"))).require()
    with pytest.raises(StoreError, match="there is no such bucket"):
        Remote(Address.parse(bucket.uri("runs", bucket="nowhere"))).write("x", b"")
    with pytest.raises(StoreError, match="no bucket is named; write s3://BUCKET/PREFIX"):
        Remote(Address.parse(f"s3:///runs?endpoint_override=127.0.0.1:{bucket.port}&scheme=http")).require()


def test_refused_credentials_are_told_with_what_to_set(bucket: Bucket) -> None:
    with bucket.closed_to_strangers(), pytest.raises(StoreError, match=r"access is refused: .*AWS_ACCESS_KEY") as met:
        Remote(Address.parse(bucket.uri("runs"))).require()
    assert "\n" not in str(met.value)


def test_a_store_that_is_not_there_is_told_soon() -> None:
    start = time.monotonic()
    uri = f"s3://sweeps/runs?endpoint_override=127.0.0.1:{free_port()}&scheme=http&region=us-east-1"
    with pytest.raises(StoreError, match="it does not answer"):
        Remote(Address.parse(uri)).require()
    assert time.monotonic() - start < 5


def test_the_endpoint_may_come_from_the_environment(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
    Remote(Address.parse("s3://sweeps/by-environment?region=us-east-1")).write("x", b"1")
    assert bucket.contents("by-environment") == {"x": b"1"}


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("zz://bucket/runs", "unknown scheme 'zz'; there are: file, s3, gs"),
        ("s3://bucket/runs?regoin=x", "unknown option 'regoin'; did you mean region"),
        ("gs://bucket/runs?regoin=x", "regoin"),
        ("abfs://container@account/runs", "adlfs"),
    ],
)
def test_a_wrong_uri_is_explained(uri: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Remote(Address.parse(uri)).require()


def test_credentials_in_a_uri_are_refused_and_not_repeated() -> None:
    with pytest.raises(StoreError, match="no credentials in a URI") as met:
        Address.parse("s3://AKIA:secret@bucket/runs")
    assert "secret" not in str(met.value)
    with pytest.raises(StoreError, match="no credentials in a URI"):
        Address.parse("sftp://me:secret@host/runs")
    assert Address.parse("sftp://me@host/runs").authority == "me@host"


def test_what_a_store_lists_cannot_lead_out_of_a_directory(bucket: Bucket) -> None:
    bucket.put("sly/../../passwd", b"x")
    bucket.put("sly/good", b"x")
    assert Remote(Address.parse(bucket.uri("sly"))).sizes() == {"good": 1}
    assert [name for name in ("a/../b", "..", "/b", "a/.b/c", "a/b", "a..b") if is_visible(name)] == ["a/b", "a..b"]


def test_an_address_has_a_name_a_parent_and_children() -> None:
    address = Address.parse("s3://bucket/runs/?region=x")
    assert str(address) == "s3://bucket/runs?region=x"
    assert str(address.child("it")) == "s3://bucket/runs/it?region=x"
    assert address.child("it").parent == address
    assert (address.child("it").name, address.plain) == ("it", "bucket/runs")
    assert str(Address.parse("file:///a b/c")) == "file:///a b/c"
    assert Address.parse("file:///a%20b").plain == "/a b"
    assert str(Address.parse("s3://bucket").child("it")) == "s3://bucket/it"
