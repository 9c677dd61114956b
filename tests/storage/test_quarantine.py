"""Quarantine: what could not be read is kept byte for byte, with its reason, and is never followed or run into."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from memfiles.errors import StorageFailed
from memfiles.records.keys import entry_path, user_hash
from memfiles.records.redactions import NONCE_BYTES, Piece, piece_of
from memfiles.storage import quarantine
from memfiles.storage.atomic import Descriptor

AT = "2026-11-21T09:00:00.000Z"
NOBODY = 65534


@pytest.fixture
def directory(tmp_path: Path) -> int:
    return Descriptor.of_directory(tmp_path)


def piece(text: bytes) -> Piece:
    return piece_of(text, known=(), nonce=bytes(NONCE_BYTES))


def test_a_bad_record_is_moved_byte_for_byte_with_its_reason(tmp_path: Path, directory: int) -> None:
    """It is gone from where it lay, and a person can see what was wrong."""
    (tmp_path / "notes.json").write_bytes(b"\xff{ half a rec")
    kept = quarantine.set_aside(directory, "notes.json", reason="it is not JSON", at=AT)

    assert not (tmp_path / "notes.json").exists()
    assert b"\xff{ half a rec" == (tmp_path / kept).read_bytes()
    assert [(kept, "it is not JSON")] == quarantine.Quarantine(directory).listing()


def test_a_copy_leaves_the_original(tmp_path: Path, directory: int) -> None:
    """What is about to be replaced stays until it is, so that a kill in between loses nothing."""
    (tmp_path / "notes.json").write_bytes(b"by hand")
    kept = quarantine.keep_copy(directory, "notes.json", b"by hand", reason="why", at=AT)

    assert [b"by hand", b"by hand"] == [(tmp_path / name).read_bytes() for name in ("notes.json", kept)]


def test_what_is_kept_is_private(tmp_path: Path, directory: int) -> None:
    """The folder 0700, a copy and its reason 0600, whatever the umask."""
    earlier = os.umask(0)
    kept = quarantine.keep_copy(directory, "notes.json", b"x", reason="why", at=AT)
    os.umask(earlier)

    assert [0o700, 0o600, 0o600] == [
        (tmp_path / name).stat().st_mode & 0o777 for name in ("quarantine", kept, f"{kept}.reason.json")
    ]


def test_the_same_record_can_go_bad_many_times(directory: int) -> None:
    """Nothing in quarantine is ever replaced, also within one millisecond."""
    kept = {quarantine.keep_copy(directory, "notes.json", b"x", reason="why", at=AT) for _ in range(20)}

    assert sorted(kept) == [path for path, _ in quarantine.Quarantine(directory).listing()]


def test_a_link_is_moved_not_followed(tmp_path: Path, directory: int) -> None:
    """What it points to is not ours."""
    (tmp_path / "outside").write_bytes(b"theirs")
    (tmp_path / "notes.json").symlink_to(tmp_path / "outside")
    kept = quarantine.set_aside(directory, "notes.json", reason="why", at=AT)

    assert (tmp_path / kept).is_symlink()
    assert b"theirs" == (tmp_path / "outside").read_bytes()


def test_a_folder_is_moved_with_all_that_is_in_it(tmp_path: Path, directory: int) -> None:
    """Someone may miss it."""
    (tmp_path / "notes.json").mkdir()
    (tmp_path / "notes.json" / "inside").write_bytes(b"x")
    kept = quarantine.set_aside(directory, "notes.json", reason="why", at=AT)

    assert b"x" == (tmp_path / kept / "inside").read_bytes()


def test_without_quarantine_there_is_nothing_in_it(directory: int) -> None:
    """Looking does not make the folder."""

    assert [] == quarantine.Quarantine(directory).listing()
    assert [] == os.listdir(directory)


@pytest.mark.parametrize("note", [b"", b"[]", b'{"reason": 7', b"\xff"])
def test_a_lost_reason_is_unknown(tmp_path: Path, directory: int, note: bytes) -> None:
    """The copy is still listed."""
    kept = quarantine.keep_copy(directory, "notes.json", b"x", reason="why", at=AT)
    (tmp_path / f"{kept}.reason.json").write_bytes(note)

    assert [(kept, "unknown")] == quarantine.Quarantine(directory).listing()


def test_copies_that_hold_a_text_are_removed_with_their_reason(tmp_path: Path, directory: int) -> None:
    """Redaction reaches them, also where JSON writes the text with escapes; other copies stay."""
    for data in (b"a hunter2 b", b"nothing", b"\\u0068unter2"):
        quarantine.keep_copy(directory, "notes.json", data, reason="why", at=AT)

    assert 2 == quarantine.Quarantine(directory).remove("notes.json", holding=[piece(b"hunter2")])
    assert [b"nothing"] == [(tmp_path / kept).read_bytes() for kept, _ in quarantine.Quarantine(directory).listing()]
    assert 2 == len(os.listdir(tmp_path / "quarantine"))


@pytest.mark.parametrize("other", ["notes2.json", "my-notes.json", "notes.json.json", "notes.b.json"])
def test_copies_of_other_records_are_left_alone(directory: int, other: str) -> None:
    """Also of those whose name begins like this one's."""
    quarantine.keep_copy(directory, other, b"hunter2", reason="why", at=AT)

    assert 0 == quarantine.Quarantine(directory).remove("notes.json", holding=[piece(b"hunter2")])


def test_a_text_is_found_in_a_copy_of_any_size(tmp_path: Path, directory: int) -> None:
    """Also where it lies across the borders of what is read at once."""
    kept = quarantine.keep_copy(directory, "notes.json", b"", reason="why", at=AT)
    (tmp_path / kept).write_bytes(b"x" * ((8 << 20) - 3) + b"hunter2" + b"x" * 100)

    assert 1 == quarantine.Quarantine(directory).remove("notes.json", holding=[piece(b"hunter2")])


def test_what_is_no_file_holds_no_text(tmp_path: Path, directory: int) -> None:
    """A FIFO would hang whoever reads it, a link leads outside."""
    os.mkfifo(tmp_path / "notes.json")
    quarantine.set_aside(directory, "notes.json", reason="why", at=AT)
    (tmp_path / "notes.json").symlink_to(tmp_path / "nowhere")
    quarantine.set_aside(directory, "notes.json", reason="why", at=AT)

    assert 0 == quarantine.Quarantine(directory).remove("notes.json", holding=[piece(b"hunter2")])


def test_a_folder_goes_with_all_that_is_in_it_where_a_file_in_it_holds_the_text(tmp_path: Path, directory: int) -> None:
    """What it links to stays; a folder that holds nothing of it stays as well."""
    (tmp_path / "elsewhere").write_bytes(b"hunter2")
    for content in (b"hunter2", b"nothing"):
        (tmp_path / "notes.json" / "below").mkdir(parents=True)
        (tmp_path / "notes.json" / "below" / "copy").write_bytes(content)
        (tmp_path / "notes.json" / "link").symlink_to(tmp_path / "elsewhere")
        quarantine.set_aside(directory, "notes.json", reason="why", at=AT)

    assert 1 == quarantine.Quarantine(directory).remove("notes.json", holding=[piece(b"hunter2")])
    assert 1 == quarantine.Quarantine(directory).remove("notes.json")
    assert [] == os.listdir(tmp_path / "quarantine")
    assert b"hunter2" == (tmp_path / "elsewhere").read_bytes()


@pytest.mark.parametrize(
    "call",
    [
        lambda copies: copies.remove("notes.json", holding=[piece(b"hunter2")]),
        lambda copies: copies.remove_if(lambda path, data: True),
        lambda copies: copies.notes("conflicts"),
    ],
)
def test_a_folder_that_cannot_be_opened_is_not_an_empty_one(
    directory: int, call: Callable[[quarantine.Quarantine], object]
) -> None:
    """With too many open files a redaction would report success, and the copy that holds the text would stay."""
    kept = quarantine.Quarantine(directory)
    kept.keep("notes.json", b"hunter2", reason="why", at=AT, folder="quarantine")
    before = kept.listing()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(StorageFailed):
            call(kept)
        told = kept.listing()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert [("quarantine", "the folder quarantine cannot be listed: Too many open files (EMFILE)")] == told
    assert (1, before) == (len(before), kept.listing())
    assert 1 == kept.remove("notes.json", holding=[piece(b"hunter2")])


@pytest.mark.parametrize("below", ["", "/below"])
def test_a_copy_that_cannot_be_read_may_hold_the_text(
    tmp_path: Path, directory: int, below: str, require_root: Callable[[], None]
) -> None:
    """Nor is it taken for nothing by a forget: whoever removes text is told to give access first."""
    require_root()  # to be someone else for a moment
    kept = tmp_path / "quarantine" / "notes.json.x.1"
    (kept if below else kept.parent).mkdir(parents=True)
    (tmp_path / f"{kept}{below}").write_bytes(b"hunter2")
    (tmp_path / f"{kept}{below}").chmod(0o600)
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o600)
    copies = quarantine.Quarantine(directory)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(StorageFailed, match="cannot be removed: Permission denied"):
            copies.remove("notes.json", holding=[piece(b"hunter2")])
        with pytest.raises(StorageFailed, match="cannot be removed"):
            copies.remove_if(lambda path, data: data == b"hunter2" or not data)
    finally:
        os.seteuid(0)

    assert kept.exists()
    assert 1 == copies.remove("notes.json", holding=[piece(b"hunter2")])


@pytest.mark.parametrize("folder", ["quarantine", "conflicts"])
def test_a_file_whose_name_leaves_no_room_for_a_note_has_none(tmp_path: Path, directory: int, folder: str) -> None:
    """Somebody put it there by hand: it is no reason to keep what is to be removed, and it may be removed itself."""
    copies, name = quarantine.Quarantine(directory), f"{folder}/{'n' * 250}"
    copies.keep("notes.json", b"hunter2", reason="why", at=AT, folder=folder)
    (tmp_path / name).write_bytes(b"by hand")
    copies.remove_if(lambda path, data: data == b"hunter2")

    assert [(name, "unknown")] == copies.listing(folder)
    copies.remove_if(lambda path, data: data == b"by hand")
    assert [] == [*(tmp_path / folder).iterdir()]


@pytest.mark.parametrize("folder", ["a" * 120, "=e5" * 53])
def test_a_path_too_long_for_a_file_name_is_in_the_note(directory: int, folder: str) -> None:
    """That of a user's entry, if the agent's name has a long folder; without its note a copy is still of that user."""
    path = entry_path(f"{folder}/users/{user_hash('ada')}", "c" * 40)
    copies, seen = quarantine.Quarantine(directory), dict[str, bytes]()
    for text in (b"hunter2", b"other"):
        copies.keep(path, text, reason="why", at=AT, folder="conflicts", lost="local")
    (first, second), removed = copies.notes("conflicts"), copies.remove(path, holding=[piece(b"hunter2")])
    (left,) = copies.notes("conflicts")
    os.unlink(f"{left.kept}.reason.json", dir_fd=directory)
    copies.remove_if(lambda at, data: seen.setdefault(at, data) == b"")

    assert (path, path, 1, path) == (first.path, second.path, removed, left.path)
    assert [(path.rpartition("/users/")[2], b"other")] == [
        (at.rpartition("/users/")[2], data) for at, data in seen.items()
    ]
    assert 1 == copies.remove(path)
