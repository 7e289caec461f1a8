"""Files of an export that appear together or not at all."""

from pathlib import Path

import pytest

from orchestrator.errors import ExportError
from orchestrator.export.writing import write


def test_files_appear_with_their_folders(tmp_path: Path) -> None:
    write(tmp_path / "new" / "out", {"a.txt": b"a", "sub/deep/b.txt": b"b"})
    assert (tmp_path / "new" / "out" / "a.txt").read_bytes() == b"a"
    assert (tmp_path / "new" / "out" / "sub" / "deep" / "b.txt").read_bytes() == b"b"
    assert len(list((tmp_path / "new" / "out").iterdir())) == 2


def test_a_move_that_fails_is_undone_with_those_before_it(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes(b"old")
    (tmp_path / "sub").write_bytes(b"a file in the way of the folder")
    files = {"new.txt": b"new", "fresh/new.txt": b"new", "old.txt": b"new", "sub/b.txt": b"b"}
    with pytest.raises(ExportError, match="cannot write the export to"):
        write(tmp_path, files, force=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "old.txt": b"old",
        "sub": b"a file in the way of the folder",
    }


def test_nothing_is_left_of_an_output_that_could_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="File name too long"):
        write(tmp_path / "out" / "deep", {"a.txt": b"a", "n" * 300: b"b"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["source.txt", "folder/x.txt"])
def test_a_source_is_spared_even_by_force(tmp_path: Path, name: str) -> None:
    (tmp_path / "source.txt").write_bytes(b"theirs")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ExportError, match="which is only read"):
        write(tmp_path, {name: b"ours"}, force=True, sources=(tmp_path / "source.txt", tmp_path / "folder"))
    assert (tmp_path / "source.txt").read_bytes() == b"theirs"
    assert list((tmp_path / "folder").iterdir()) == []
