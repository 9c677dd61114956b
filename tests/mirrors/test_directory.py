"""DirectoryMirror beyond the exam: what lies in the directory, what it does not follow, who else writes there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memfiles.errors import CopyRefused, InvalidArgument, MirrorRefused, MirrorUnavailable
from memfiles.storage.locks import RecordLocks
from memfiles.sync.mirror import BODY_MAX_BYTES, Mirror
from mirrors import DirectoryMirror
from mirrors.directory import open_url

APPENDER = """
import sys
from memfiles.errors import MirrorConflict
from memfiles.sync.mirror import equals
from mirrors import DirectoryMirror
mirror = DirectoryMirror(sys.argv[1])
for number in range(40):
    while True:
        stored = mirror.get("a.json")
        try:
            mirror.put("a.json", stored.body + f"{sys.argv[2]}{number}\\n".encode(), when=equals(stored.version))
        except MirrorConflict:
            continue
        break
"""


def everything(folder: Path) -> set[str]:
    """What lies in a folder, without the locks."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    return {name for name in found if not name.startswith(".state")}


def calls_of(mirror: Mirror, key: str) -> list[Callable[[], object]]:
    return [lambda: mirror.get(key), lambda: mirror.put(key, b"new"), lambda: mirror.delete(key)]


def test_the_files_are_the_objects(tmp_path: Path) -> None:
    """The same bytes under the same relative path, private, and nothing left over."""
    mirror = DirectoryMirror(tmp_path)
    mirror.put("entries/@workspace/a.json", b"1")
    mirror.put("entries/@workspace/a.json", b"2")

    assert b"2" == (tmp_path / "entries/@workspace/a.json").read_bytes()
    assert {"entries", "entries/@workspace", "entries/@workspace/a.json"} == everything(tmp_path)
    assert {0o700} == {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("entries", "entries/@workspace")}
    assert 0o600 == stat.S_IMODE((tmp_path / "entries/@workspace/a.json").stat().st_mode)


@pytest.mark.parametrize("prefix", ["", "entries/"])
def test_what_a_killed_writer_left_is_removed_by_the_next_listing(tmp_path: Path, prefix: str) -> None:
    """Not what a live one writes just now, nor a file that is nobody's of ours."""
    mirror = DirectoryMirror(tmp_path)
    for key in ("entries/a/1.json", "entries/a/2.json", "entries/a/x.part"):
        mirror.put(key, b"1")
    for name in (".1.json.tmp", ".2.json.tmp", ".x.part.tmp", ".other.tmp", "3.json.tmp"):
        (tmp_path / "entries/a" / name).write_bytes(b"an earlier text")
    with RecordLocks(os.open(tmp_path, os.O_RDONLY), timeout=0.0).hold(["entries/a/2.json"]):
        listed = {key for key, _ in mirror.list(prefix)}
    left = {path.name for path in (tmp_path / "entries/a").iterdir()}

    assert {"entries/a/1.json", "entries/a/2.json", "entries/a/x.part", "entries/a/3.json.tmp"} == listed
    assert {"1.json", "2.json", "x.part", ".2.json.tmp", ".other.tmp", "3.json.tmp"} == left


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    """Conditions are looked at and acted on under one lock; processes stand for machines on a share."""
    DirectoryMirror(tmp_path).put("a.json", b"")
    writers = [subprocess.Popen([sys.executable, "-c", APPENDER, str(tmp_path), name]) for name in "xy"]

    assert [0, 0] == [writer.wait(60) for writer in writers]
    lines = (tmp_path / "a.json").read_text().split()
    assert sorted(f"{name}{number}" for name in "xy" for number in range(40)) == sorted(lines)


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    """A share that is not mounted looks like it; records put there would be hidden by the mount."""
    mirror = DirectoryMirror(tmp_path / "share")
    for call in [*calls_of(mirror, "a.json"), mirror.list]:
        with pytest.raises(MirrorUnavailable, match="create the directory or mount the share"):
            call()

    assert set() == everything(tmp_path)


def test_a_directory_that_is_replaced_is_noticed(tmp_path: Path) -> None:
    """A mirror that was opened before the mount writes to what is mounted."""
    place = tmp_path / "share"
    place.mkdir()
    mirror = DirectoryMirror(place)
    mirror.put("a.json", b"1")
    place.rename(tmp_path / "gone")
    place.mkdir()
    mirror.put("b.json", b"2")

    assert ["b.json"] == [key for key, _ in mirror.list()]
    assert {"a.json"} == everything(tmp_path / "gone")


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    """Neither out of the directory nor within it."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    (outside / "deeper").mkdir(parents=True)
    inside.mkdir()
    (outside / "a.json").write_bytes(b"not ours")
    (inside / "link").symlink_to(outside)
    mirror = DirectoryMirror(inside)
    for call in [*calls_of(mirror, "link/a.json"), *calls_of(mirror, "link/deeper/a.json")]:
        with pytest.raises(MirrorRefused):
            call()

    assert [] == list(mirror.list())
    assert {"a.json": b"not ours"} == {path.name: path.read_bytes() for path in outside.rglob("*.json")}


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """At once, and it is left as it is."""
    place = tmp_path / "a.json"
    make: dict[str, Callable[[], object]] = {
        "link": lambda: place.symlink_to("/etc/hostname"),
        "fifo": lambda: os.mkfifo(place),
        "folder": lambda: place.mkdir(),
    }
    make[kind]()
    for call in calls_of(DirectoryMirror(tmp_path), "a.json"):
        with pytest.raises(MirrorRefused, match="a.json"):
            call()

    assert os.path.lexists(place)


def test_the_locks_are_not_looked_for_elsewhere(tmp_path: Path) -> None:
    """A link where the locks lie would have us make files outside."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (inside / ".state").mkdir(parents=True)
    (inside / ".state/locks").symlink_to(outside)
    with pytest.raises(MirrorRefused):
        DirectoryMirror(inside).put("a.json", b"1")

    assert set() == everything(outside)


def test_an_enormous_file_is_listed_and_refused(tmp_path: Path) -> None:
    """It is reported by its name, and never read into memory."""
    (tmp_path / "a.json").touch()
    os.truncate(tmp_path / "a.json", BODY_MAX_BYTES + 1)
    mirror = DirectoryMirror(tmp_path)

    assert ["a.json"] == [key for key, _ in mirror.list()]
    with pytest.raises(MirrorRefused, match=f"{BODY_MAX_BYTES + 1} bytes"):
        mirror.get("a.json")


def test_what_is_refused_has_the_version_that_is_listed(tmp_path: Path) -> None:
    """So that a note on it stays for as long as it is there."""
    (tmp_path / "a.json").touch()
    os.truncate(tmp_path / "a.json", BODY_MAX_BYTES + 1)
    mirror = DirectoryMirror(tmp_path)

    with pytest.raises(CopyRefused) as refused:
        mirror.get("a.json")
    assert dict(mirror.list())["a.json"] == refused.value.version


def test_what_a_dead_writer_left_is_no_object(tmp_path: Path) -> None:
    """It is not listed, and the next put takes its place."""
    (tmp_path / ".a.json.tmp").write_bytes(b"half of some")
    mirror = DirectoryMirror(tmp_path)

    assert [] == list(mirror.list())
    mirror.put("a.json", b"whole")
    assert {"a.json"} == everything(tmp_path)


def test_a_put_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Here because the name is longer than a file system takes, which no repetition helps."""
    mirror = DirectoryMirror(tmp_path)
    with pytest.raises(MirrorRefused, match="File name too long"):
        mirror.put("x" * 300 + ".json", b"1")

    assert set() == everything(tmp_path)


def test_a_writer_that_holds_the_lock_too_long(tmp_path: Path) -> None:
    """Is waited for as long as was asked, and named."""
    mirror = DirectoryMirror(tmp_path, lock_timeout=0.05)
    mirror.put("a.json", b"1")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with (
            RecordLocks(descriptor, timeout=1).hold(["a.json"]),
            pytest.raises(MirrorUnavailable, match="a.json has been locked by process"),
        ):
            mirror.put("a.json", b"2")
    finally:
        os.close(descriptor)

    assert b"1" == (tmp_path / "a.json").read_bytes()


def test_a_change_by_hand_changes_the_version(tmp_path: Path) -> None:
    """Also of a file that was listed before, and changed in place to the same length."""
    mirror = DirectoryMirror(tmp_path)
    mirror.put("a.json", b"1")
    os.utime(tmp_path / "a.json", (1, 1))  # long ago
    before = [list(mirror.list()), list(mirror.list())]
    (tmp_path / "a.json").write_bytes(b"2")

    assert before[0] == before[1] != list(mirror.list())


def test_threads_that_list_at_the_same_time_all_see_everything(tmp_path: Path) -> None:
    """None reads on where another one is in the list of names."""
    mirror = DirectoryMirror(tmp_path)
    expected = [(f"{number}.json", mirror.put(f"{number}.json", b"x")) for number in range(30)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: list(mirror.list()), range(100)))

    assert [] == [each for each in found if sorted(each) != sorted(expected)]


@pytest.mark.parametrize("url", ["file:///srv/a%20b/", "file://localhost/srv/a%20b"])
def test_a_url_names_a_directory(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Percent-encoded where needed."""
    with pytest.raises(MirrorUnavailable, match="^/srv/a b does not exist"):
        open_url(url).get("a.json")


@pytest.mark.parametrize("url", ["file://srv/a", "file://./a", "file://", "file:///", "file:///a?b=1"])
def test_a_url_that_names_none_is_refused(url: str) -> None:
    """A relative path reads like a machine's name."""
    with pytest.raises(InvalidArgument):
        open_url(url)
