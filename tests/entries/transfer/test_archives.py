"""Zip archives of what is imported: hostile ones, too large ones, and files that are none."""

from __future__ import annotations

import io
import json
import stat
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from memfiles.entries.transfer.document import Document
from memfiles.entries.transfer.formats import Format
from memfiles.entries.transfer.sources import detect, read
from memfiles.errors import InvalidArgument


def keys(path: Path, format: Format | None = None) -> dict[str, Document]:
    return {document.key: document for document in read(path, format=format).documents}


def told(path: Path) -> list[str]:
    return [f"{skipped.where}: {skipped.why}" for skipped in read(path).skipped]


def archive(path: Path, *members: tuple[str, bytes], mode: int = 0o600 | stat.S_IFREG, encrypted: bool = False) -> Path:
    """A zip archive with these members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            written.writestr(info, data)
    if encrypted:
        marked = bytearray(path.read_bytes())
        for sign, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            marked[marked.index(sign) + at] |= 1
        path.write_bytes(marked)
    return path


def why(path: Path) -> list[str]:
    return [skipped.why for skipped in read(path, format="notes").skipped]


def test_a_hostile_archive(tmp_path: Path) -> None:
    """Nothing of it becomes a path, no link is followed, and what is bad is told."""
    names = (
        "../up.md",
        "/root.md",
        "a/../../b.md",
        "C:\\x.md",
        "a//b.md",
        "./c.md",
        "d" + "/d" * 20 + ".md",
        "x\\y.md",
    )
    bad = archive(tmp_path / "bad.zip", *((name, b"x") for name in names), ("ok.md", b"x"), ("z.md", b"\xff"))

    assert ["ok"] == list(keys(bad, "notes"))
    assert 6 * ["its name is not a path within the archive"] == [it for it in why(bad) if "not a path" in it][:6]
    assert len(names) + 1 == len(why(bad))
    assert [] == [path for path in tmp_path.rglob("*") if path != bad]
    link = archive(tmp_path / "link.zip", ("l.md", b"/etc/passwd"), mode=0o777 | stat.S_IFLNK)
    assert ["this is a link or a device, which is not followed"] == why(link)
    broken = archive(tmp_path / "broken.zip", ("l.md", bytes(range(256)) * 9), ("ok.md", b"x"))
    data = bytearray(broken.read_bytes())
    data[60:80] = b"\xff" * 20
    broken.write_bytes(data)
    assert (["ok"], ["it cannot be read"]) == (
        list(keys(broken, "notes")),
        [it.partition(":")[0] for it in why(broken)],
    )
    assert ["it is encrypted"] == why(archive(tmp_path / "locked.zip", ("l.md", b"x"), encrypted=True))


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """A member is read up to the bound whatever the archive says its size is."""
    bomb = archive(tmp_path / "bomb.zip", ("big.md", bytes(64 << 20)), ("ok.md", b"x"))
    tracemalloc.start()
    assert ["it has more than 8388608 bytes"] == why(bomb)
    assert tracemalloc.get_traced_memory()[1] < 48 << 20
    tracemalloc.stop()
    data = bomb.read_bytes().replace((64 << 20).to_bytes(4, "little"), (5).to_bytes(4, "little"))
    bomb.write_bytes(data)
    assert (["ok"], 1) == (list(keys(bomb, "notes")), len(why(bomb)))


def test_what_is_not_an_archive(tmp_path: Path) -> None:
    """Each is one clear error: garbage, half an archive, and one whose list of files is beyond all bounds."""
    good = archive(tmp_path / "good.zip", ("a.md", b"x")).read_bytes()
    at = good.index(b"PK\x05\x06")
    huge = good[: at + 12] + b"\xff\xff\xff\x7f" + good[at + 16 :]
    large = good[:at] + b"PK\x06\x07" + bytes(16) + good[at:]
    cases = ((b"", "not a zip"), (b"no", "not a zip"), (good[: len(good) // 2], "not a zip"), (huge, "65,535 files"))
    for data, what in (*cases, (large, "65,535 files")):
        (tmp_path / "x.zip").write_bytes(data)
        with pytest.raises(InvalidArgument, match=f"cannot be read as a zip archive: .*{what}"):
            read(tmp_path / "x.zip", format="notes")


def test_no_archive_within_an_archive(tmp_path: Path) -> None:
    """Only one level is looked into; the inner one is counted as not taken."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as written:
        written.writestr("memories.json", json.dumps([{"conversations_memory": "hidden"}]))
    outer = archive(
        tmp_path / "out.zip", ("users.json", b"[]"), ("conversations.json", b"[]"), ("m.zip", inner.getvalue())
    )

    assert ("claude", {}, ["out: 1 other files and folders of the export"]) == (detect(outer), keys(outer), told(outer))
