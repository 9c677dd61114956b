"""Zip archives: written by exports, and read in place and never unpacked by imports.

The rules this file guards: no name of an archive becomes a path; links, encrypted files, absolute names and names with
``..`` are reported and not read; and the number, the size and the depth of what is read are bounded by what was read,
not by what the archive says about itself.
"""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping

from memfiles.entries.transfer.document import Skipped, printed
from memfiles.entries.transfer.folders import DEPTH_MAX, FILES_MAX, NOT_A_PART, SourceFile, Wanted
from memfiles.errors import InvalidArgument

_DIRECTORY_MAX = 64 * 1024 * 1024
_END, _END_64, _END_SIZE = b"PK\x05\x06", b"PK\x06\x07", 22
_TAIL = 20 + _END_SIZE + 0xFFFF  # the record at the end of an archive, with the longest comment
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others need as much memory as the archive likes
_ENCRYPTED = 0x1


def packed(files: Mapping[str, bytes]) -> bytes:
    """A zip archive with these files; the same files give the same bytes."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)
    return written.getvalue()


class Archive:
    """The files in a zip archive, by path; a single folder around them all is left out of the paths."""

    def __init__(self, path: str) -> None:
        """``InvalidArgument`` if it is not a zip archive, or has too many files."""
        self._path = path
        try:
            with open(path, "rb") as file:
                _check_directory(file.fileno())
                with zipfile.ZipFile(file) as archive:
                    members = archive.infolist()
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, RecursionError) as error:
            raise InvalidArgument(f"{printed(path)} cannot be read as a zip archive: {printed(str(error))}") from error
        self._bad, found = _sorted_out(members)
        around = next(iter(found), "").partition("/")[0] + "/"
        is_around = bool(found) and all(path.startswith(around) for path in found)
        self.name = around[:-1] if is_around else os.path.basename(path).removesuffix(".zip")
        self._members = {path[len(around) * is_around :]: member for path, member in found.items()}

    def paths(self) -> Iterator[str]:
        """The paths of all files."""
        return iter(self._members)

    def files(self, wanted: Wanted, *, most: int) -> Iterator[SourceFile | Skipped]:
        """Every wanted file of at most ``most`` bytes, by path, and a ``Skipped`` for everything else."""
        yield from self._bad
        with open(self._path, "rb") as file, zipfile.ZipFile(file) as archive:
            for path, member in sorted(self._members.items()):
                steps = path.split("/")
                folders = ("/".join(steps[:depth]) for depth in range(1, len(steps)))
                if not all(wanted(folder, True) for folder in folders) or not wanted(path, False):
                    yield Skipped(printed(path), NOT_A_PART)
                else:
                    yield _read(archive, member, path=path, most=most)


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, *, path: str, most: int) -> SourceFile | Skipped:
    try:
        with archive.open(member) as file:
            data = file.read(most + 1)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        return Skipped(printed(path), f"it cannot be read: {printed(str(error))}")
    if len(data) > most:
        return Skipped(printed(path), f"it has more than {most} bytes")
    return SourceFile(path, data)


def _check_directory(descriptor: int) -> None:
    """Refuse an archive whose list of files ``zipfile`` could not read in bounded memory."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
    at = tail.rfind(_END)
    listing_bytes = int.from_bytes(tail[at + 12 : at + 16], "little")
    if at >= 0 and (_END_64 in tail[max(0, at - 20) : at] or listing_bytes > _DIRECTORY_MAX):
        raise ValueError("it holds more than 65,535 files or 4 GiB; unpack it and import the folder")


def _sorted_out(members: list[zipfile.ZipInfo]) -> tuple[list[Skipped], dict[str, zipfile.ZipInfo]]:
    """The reports about bad members, and the good ones by path."""
    if len(members) > FILES_MAX:
        raise InvalidArgument(f"the archive holds more than {FILES_MAX} files: import a part of it")
    bad, good = list[Skipped](), dict[str, zipfile.ZipInfo]()
    for member in members:
        if member.is_dir() or member.filename.startswith("__MACOSX/"):
            continue
        why = _fault_in(member)
        if why is None and good.setdefault(member.filename, member) is not member:
            why = "another file of the archive has the same name"
        if why is not None:
            bad.append(Skipped(printed(member.filename), why))
    return bad, good


def _fault_in(member: zipfile.ZipInfo) -> str | None:
    """Why a member is not read; None if it is."""
    steps = member.filename.split("/")
    if {"", ".", ".."}.intersection(steps) or re.match(r"[A-Za-z]:|.*\\", member.filename, re.DOTALL):
        return "its name is not a path within the archive"
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        return "this is a link or a device, which is not followed"
    if member.flag_bits & _ENCRYPTED:
        return "it is encrypted"
    if member.compress_type not in _METHODS:
        return "its compression is not supported; use deflate"
    return f"this is more than {DEPTH_MAX} folders deep" if len(steps) > DEPTH_MAX + 1 else None
