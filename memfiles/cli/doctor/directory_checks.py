"""What ``memfiles doctor`` looks at: pure looking, each check a function that returns its findings.

The rule this file guards: a check writes nothing, and what it finds says what to do about it.
"""

from __future__ import annotations

import json
import os
import platform
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from memfiles.errors import MemfilesError, RecordCorrupt
from memfiles.files.restorer import stored_record
from memfiles.memory import load
from memfiles.records.keys import staged_path, uid_of
from memfiles.storage import quarantine
from memfiles.storage.atomic import open_directory
from memfiles.storage.journal import FOLDER
from memfiles.storage.locks import FOLDER as LOCKS
from memfiles.tools.json_schemas import workflow_schema
from memfiles.workflow.workflow import MemoryFile, Workflow

JOURNALS = FOLDER
CheckState = Literal["ok", "warn", "fail"]
OLDEST_PYTHON = (3, 11)
LITTLE_SPACE = 64 * 1024 * 1024
MOUNTS = Path("/proc/self/mounts")
SCHEMA_COMMENT = "yaml-language-server: $schema="
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.s3fs", "fuse.rclone"}
_VOLATILE = {"tmpfs", "ramfs"}


@dataclass(frozen=True)
class CheckResult:
    """One thing that was looked at: how it is, and what to do if that is not well."""

    state: CheckState
    check: str
    detail: str


_ok = partial(CheckResult, "ok")
_warn = partial(CheckResult, "warn")
_fail = partial(CheckResult, "fail")


def check_platform() -> Iterator[CheckResult]:
    """The interpreter and the system."""
    found = f"Python {platform.python_version()} on {platform.system()}"
    if sys.version_info < OLDEST_PYTHON:
        yield _fail("python", f"{found}: use Python 3.11 or newer")
    elif sys.platform not in ("linux", "darwin"):
        yield _fail("python", f"{found}: memfiles runs on Linux and macOS only (it needs flock)")
    else:
        yield _ok("python", found)


def load_checked(path: Path) -> tuple[Workflow | None, list[CheckResult]]:
    """The workflow, if it can be used, and what is to say about it."""
    try:
        workflow = load(path)
    except (MemfilesError, OSError) as error:
        return None, [_fail("workflow", str(error))]
    files = len(workflow.memory.files)
    return workflow, [_ok("workflow", f"{path}: {files} memory files, {len(workflow.agents)} agents")]


def check_schema_comment(path: Path) -> Iterator[CheckResult]:
    """Whether the first line leads an editor to the schema of this version."""
    first = path.read_text(encoding="utf-8", errors="replace").split("\n", 1)[0]
    _, found, target = first.partition(SCHEMA_COMMENT)
    target = target.strip()
    if not found:
        comment = f"# {SCHEMA_COMMENT}schemas/workflow.schema.json"
        yield _warn("editor schema", f"editors cannot complete: put '{comment}' into the first line of {path}")
    elif "://" in target:
        yield _ok("editor schema", f"{target} (not fetched)")
    elif not (schema := path.parent / target).is_file():
        yield _warn("editor schema", f"{schema} is missing: memfiles schema workflow > {schema}")
    elif _json_in(schema) != workflow_schema():
        yield _warn("editor schema", f"{schema} is of another version: memfiles schema workflow > {schema}")
    else:
        yield _ok("editor schema", str(schema))


def check_directory(directory: Path) -> Iterator[CheckResult]:
    """Whether the memory directory is there, private, ours and writable."""
    try:
        found = directory.stat()
    except FileNotFoundError:
        yield _missing(directory)
        return
    mode, owner = stat.S_IMODE(found.st_mode), found.st_uid
    if not stat.S_ISDIR(found.st_mode):
        yield _fail("directory", f"{directory} is not a directory: move it away, then memfiles restore")
    elif not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield _fail("directory", f"{directory} is not writable for you (owner {owner}, mode {mode:04o})")
    elif owner != os.geteuid():
        yield _warn("directory", f"{directory} is of user {owner}, you are {os.geteuid()}: use it as one user")
    elif mode & 0o077:
        yield _warn("directory", f"{directory} is open to others (mode {mode:04o}): chmod 700 {directory}")
    else:
        yield _ok("directory", f"{directory} (mode {mode:04o})")


def _missing(directory: Path) -> CheckResult:
    """What is to say where nothing is yet: whether a restore can make it."""
    if directory.is_symlink():
        target = os.readlink(directory)
        return _fail(
            "directory", f"{directory} is a link to {target}, which is not there: make that, or remove the link"
        )
    nearest = next(folder for folder in directory.parents if folder.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        return _fail("directory", f"{directory} is not there, and you may not make it in {nearest}")
    return _warn("directory", f"{directory} is not there yet: memfiles restore makes it")


def check_file_system(directory: Path, *, mounts: Path = MOUNTS) -> Iterator[CheckResult]:
    """Whether the file system keeps what it is given, for all who lock it, and has room."""
    kind = file_system_of(directory, mounts=mounts)
    if kind in _REMOTE:
        detail = f"{kind} is a network file system, where locks and flushes cannot be relied on: use a local disk"
        yield _fail("file system", detail)
    elif kind in _VOLATILE:
        yield _warn("file system", f"{kind} is emptied at a reboot: use a disk for memory that must last")
    else:
        yield _ok("file system", kind or "of a kind this system does not tell")
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    if free < LITTLE_SPACE:
        yield _warn("free space", f"{free // 1024} KiB left: make room")
    else:
        yield _ok("free space", f"{free // 1024**2} MiB left")


def check_records(directory: Path, files: tuple[MemoryFile, ...]) -> Iterator[CheckResult]:
    """Whether each declared file's record can be read, fits its digest and keeps its cap."""
    sound = 0
    for file in files:
        try:
            record = stored_record(directory, file.uid)
        except RecordCorrupt as error:
            yield _fail(f"record {file.name}", f"{error}: memfiles restore sets it aside and reseeds the file")
            continue
        if record is None:
            yield _warn(f"record {file.name}", "not on disk yet: memfiles restore writes the declared content")
        elif not record.is_intact:
            yield _warn(f"record {file.name}", "changed by hand: memfiles restore takes it in as a revision")
        elif record.size_bytes > file.max_size_bytes:
            detail = f"{record.size_bytes} bytes, over its cap of {file.max_size_bytes}: memfiles open {file.name}"
            yield _warn(f"record {file.name}", detail)
        else:
            sound += 1
    if sound:
        yield _ok("records", f"{sound} of {len(files)} readable, digests right, within their caps")


def check_leftovers(directory: Path, files: tuple[MemoryFile, ...]) -> Iterator[CheckResult]:
    """What lies in the directory beside the declared records."""
    names = names_in(directory)
    temps = [name for name in names if staged_path(name) is not None]
    if temps:
        yield _warn("temp files", f"{len(temps)} left by a writer that died: the next start sweeps them")
    else:
        yield _ok("temp files", "none")
    declared = {file.uid for file in files}
    orphans = [uid for name in names if (uid := uid_of(name)) is not None and uid not in declared]
    if orphans:
        detail = f"{', '.join(orphans)}: on disk but not declared, invisible to agents; declare them or move them away"
        yield _warn("orphans", detail)
    else:
        yield _ok("orphans", "none")


def check_quarantine(directory: Path) -> Iterator[CheckResult]:
    """What was set aside, and why."""
    kept = quarantined(directory)
    for path, reason in kept:
        yield _warn("quarantine", f"{path}: {reason}. Take out what is worth keeping, then delete it")
    if not kept:
        yield _ok("quarantine", "empty")


def check_locks_and_journals(directory: Path) -> Iterator[CheckResult]:
    """Whether the locks can be taken, and how many journals there are."""
    locks = directory / LOCKS
    if locks.is_dir() and not os.access(locks, os.R_OK | os.W_OK | os.X_OK):
        yield _fail("locks", f"{locks} cannot be written by this user: chown it back to the directory's owner")
    else:
        yield _ok("locks", str(locks) if locks.is_dir() else f"{locks} (made when needed)")
    journals = names_in(directory / JOURNALS)
    running = "of running processes, or replayed at the next start" if journals else "everything is in the records"
    yield _ok("journals", f"{len(journals)}: {running}")


def file_system_of(path: Path, *, mounts: Path = MOUNTS) -> str | None:
    """The type of the file system that ``path`` lies on, None where the system does not tell."""
    try:
        rows = [line.split() for line in mounts.read_text(errors="replace").splitlines()]
    except OSError:
        return None
    resolved = path.resolve()
    kinds = {row[1].replace("\\040", " "): row[2] for row in rows if len(row) > 2}
    return next((kinds[str(place)] for place in (resolved, *resolved.parents) if str(place) in kinds), None)


def names_in(folder: Path) -> list[str]:
    """The names in a folder; none if it is not there."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def quarantined(directory: Path) -> list[tuple[str, str]]:
    """The path and the reason of everything that was set aside."""
    try:
        descriptor = open_directory(directory)
    except FileNotFoundError:
        return []
    try:
        return quarantine.listing(descriptor)
    finally:
        os.close(descriptor)


def _json_in(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
