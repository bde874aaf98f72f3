"""Files are written whole, and several of them all or none."""

import os
import stat

import pytest

from xclp_crypto.whole_files import whole_files, why_not_writable, write_whole


def content_of(folder):
    return {p.name: p.read_bytes() if p.is_file() else None for p in folder.iterdir()}


def write_new(folder, names):
    with whole_files(folder) as scratch:
        for name in names:
            (scratch / name).write_bytes(b"new")


def test_a_file_is_written_and_replaced_and_nothing_else_is_left(tmp_path):
    for content in (b"", b"first", b"second"):
        assert write_whole(tmp_path / "x", content) == tmp_path / "x"
        assert content_of(tmp_path) == {"x": content}


def test_several_files_replace_those_of_the_same_names_only(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "mine").write_bytes(b"keep")
    with whole_files(tmp_path) as scratch:
        (scratch / "a").write_bytes(b"new")
        (scratch / "b").write_bytes(b"more")
        assert content_of(tmp_path)["a"] == b"old"
    assert content_of(tmp_path) == {"a": b"new", "b": b"more", "mine": b"keep"}


def test_a_folder_that_is_missing_is_made_when_the_files_are_complete(tmp_path):
    place = tmp_path / "deep" / "er"
    with whole_files(place) as scratch:
        (scratch / "a").write_bytes(b"a")
        assert not place.exists()
    assert content_of(place) == {"a": b"a"}
    assert list(place.parent.iterdir()) == [place]


def test_a_block_that_raises_leaves_all_as_it_was(tmp_path):
    def interrupted():
        yield "a"
        raise KeyboardInterrupt

    (tmp_path / "a").write_bytes(b"old")
    for place in (tmp_path, tmp_path / "none" / "more"):
        with pytest.raises(KeyboardInterrupt):
            write_new(place, interrupted())
        assert content_of(tmp_path) == {"a": b"old"}


@pytest.mark.parametrize("blocked", ["a", "b", "c"])
def test_when_one_file_cannot_be_moved_none_is_replaced(tmp_path, blocked):
    for name in {"a", "c"} - {blocked}:
        (tmp_path / name).write_bytes(b"old")
    (tmp_path / blocked).mkdir()
    before = content_of(tmp_path)
    with pytest.raises(IsADirectoryError):
        write_new(tmp_path, "abc")
    assert content_of(tmp_path) == before


def test_what_is_undone_keeps_its_mode_and_stays_a_link(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").mkdir()
    with pytest.raises(IsADirectoryError):
        write_new(tmp_path, "abc")
    assert (tmp_path / "b").readlink().name == "a"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_files_keep_their_modes_and_nobody_else_sees_them_meanwhile(tmp_path):
    with whole_files(tmp_path) as scratch:
        assert stat.S_IMODE(scratch.parent.stat().st_mode) == 0o700
        (scratch / "key").write_bytes(b"secret")
        (scratch / "key").chmod(0o600)
        (scratch / "public").write_bytes(b"known")
        (scratch / "public").chmod(0o644)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {"key": 0o600, "public": 0o644}


def test_a_link_is_replaced_and_what_it_points_to_is_not(tmp_path):
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "x").symlink_to("other")
    write_whole(tmp_path / "x", b"new")
    assert not (tmp_path / "x").is_symlink()
    assert content_of(tmp_path) == {"x": b"new", "other": b"other"}


def test_contents_are_on_the_disk_before_they_are_moved(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda file: calls.append(content_of(tmp_path).get("x")))
    write_whole(tmp_path / "x", b"new")
    assert calls == [None]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    def full(file):
        raise OSError(28, "No space left on device")

    write_whole(tmp_path / "x", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "x", b"new")
    assert content_of(tmp_path) == {"x": b"old"}


def test_whether_a_folder_can_be_written_is_found_by_trying(tmp_path):
    assert why_not_writable(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert why_not_writable(tmp_path / "none" / "deep", ["x"]) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["link", "link/deep", "file"])
def test_what_is_no_folder_cannot_be_written(tmp_path, place):
    (tmp_path / "link").symlink_to("none")
    (tmp_path / "file").write_bytes(b"")
    what = "file" if place == "file" else "link to nothing"
    assert f"is a {what}" in why_not_writable(tmp_path / place)


def test_every_name_is_tried_and_what_is_there_stays(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").symlink_to("none")
    before = {path.name: path.lstat() for path in tmp_path.iterdir()}
    assert why_not_writable(tmp_path, "abc") is None
    assert {path.name: path.lstat().st_ino for path in tmp_path.iterdir()} == {
        name: found.st_ino for name, found in before.items()
    }
    assert "File name too long" in why_not_writable(tmp_path, ["c" * 300])
    assert "File name too long" in why_not_writable(tmp_path / ("c" * 300), ["x"])

    def of_somebody_else(file, place):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(type(tmp_path), "rename", of_somebody_else)  # in a sticky folder
    reason = f"{tmp_path / 'a'} cannot be written: Operation not permitted"
    assert why_not_writable(tmp_path, "ca") == reason
    assert content_of(tmp_path) == {"a": b"old", "b": None}
