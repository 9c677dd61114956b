"""Checks of the platform, the workflow, the directory, its records and its entries, each a function of its findings.

The rule this file guards: a check writes nothing, and every finding says what to do about it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import stat
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct

from memfiles.cli import output
from memfiles.errors import RecordCorrupt, StorageFailed, reason_of
from memfiles.files.restorer import stored_record
from memfiles.index.database import PATH as INDEX
from memfiles.records import keys
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import decode_entry
from memfiles.records.marks import EntryRecord
from memfiles.storage.events import Progress, reported, utc_now
from memfiles.storage.home import AUDIT, MemoryHome, home_of
from memfiles.storage.journal import FOLDER as JOURNALS
from memfiles.storage.locks import FOLDER as LOCKS
from memfiles.storage.record_store import ReadableStore, Records
from memfiles.sync.status import kept_in, listed_in
from memfiles.tools.json_schemas import workflow_schema
from memfiles.workflow.specs import EntriesSpec
from memfiles.workflow.workflow import MemoryFile, Workflow

CheckState = Literal["ok", "warn", "fail"]
OLDEST_PYTHON = (3, 11)
LITTLE_SPACE = 64 * 1024 * 1024  # bytes
LITTLE_FILES = 1000
NAMED = 3  # unreadable entries named in findings
MOUNTS = Path("/proc/self/mounts")
SCHEMA_COMMENT = "yaml-language-server: $schema="
_ENTRY_UID = re.compile("[0-9a-f]{40}(?![0-9a-f])")
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.s3fs", "fuse.rclone"}
_VOLATILE = {"tmpfs", "ramfs"}


class CheckResult(Struct, frozen=True):
    """One finding: its state, and what to do if it is not ok."""

    state: CheckState
    check: str
    detail: str


ok = partial(CheckResult, "ok")
warn = partial(CheckResult, "warn")
fail = partial(CheckResult, "fail")


def check_platform() -> Iterator[CheckResult]:
    """The interpreter and the system."""
    found = f"Python {platform.python_version()} on {platform.system()}"
    if sys.version_info < OLDEST_PYTHON:
        yield fail("python", f"{found}; use Python 3.11 or newer")
    elif sys.platform not in ("linux", "darwin"):
        yield fail("python", f"{found}; memfiles runs on Linux and macOS only (it needs flock)")
    else:
        yield ok("python", found)


def check_schema_comment(path: Path) -> Iterator[CheckResult]:
    """Check that the first line points editors to the schema of this version."""
    first = path.read_text(encoding="utf-8", errors="replace").split("\n", 1)[0]
    _, found, target = first.partition(SCHEMA_COMMENT)
    target = target.strip()
    if not found:
        comment = f"# {SCHEMA_COMMENT}schemas/workflow.schema.json"
        yield warn("editor schema", f"editors cannot complete; make '{comment}' the first line of {path}")
    elif "://" in target:
        yield ok("editor schema", f"{target} (not fetched)")
    elif not (schema := path.parent / target).is_file():
        yield warn("editor schema", f"{schema} is missing; run memfiles schema workflow > {schema}")
    elif _json_in(schema) != workflow_schema():
        yield warn("editor schema", f"{schema} is for another version; run memfiles schema workflow > {schema}")
    else:
        yield ok("editor schema", str(schema))


def check_directory(directory: Path) -> Iterator[CheckResult]:
    """Check that the memory directory exists, is private, belongs to this user and is writable."""
    try:
        found = directory.stat()
    except FileNotFoundError:
        yield _missing(directory)
        return
    mode, owner = stat.S_IMODE(found.st_mode), found.st_uid
    if not stat.S_ISDIR(found.st_mode):
        yield fail("directory", f"{directory} is not a directory; move it away, then run memfiles restore")
    elif _is_read_only(directory):
        yield fail("directory", f"{directory} is on a file system that is mounted read-only")
    elif not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield fail("directory", f"{directory} is not writable by you (owner {owner}, mode {mode:04o}); "
                   f"use chown or chmod, or run as its owner")  # fmt: skip
    elif owner != os.geteuid():
        yield warn("directory", f"{directory} belongs to user {owner}, you are {os.geteuid()}; use one user only")
    elif mode & 0o077:
        yield warn("directory", f"{directory} is open to others (mode {mode:04o}); run chmod 700 {directory}, or mount "
                   f"its file system with umask=077 if that keeps no modes, as FAT and exFAT")  # fmt: skip
    else:
        yield ok("directory", f"{directory} (mode {mode:04o})")


def _is_read_only(directory: Path) -> bool:
    """Whether the file system is mounted so that nothing can be written, whatever the owner and mode are."""
    return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)


def _missing(directory: Path) -> CheckResult:
    """The finding for a missing directory: whether a restore can create it."""
    if directory.is_symlink():
        target = os.readlink(directory)
        return fail("directory", f"{directory} links to {target}, which does not exist; create it or remove the link")
    nearest = next(folder for folder in directory.parents if folder.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        return fail("directory", f"{directory} does not exist, and you may not create it in {nearest}")
    return warn("directory", f"{directory} does not exist yet; memfiles restore creates it")


def check_file_system(directory: Path, *, mounts: Path = MOUNTS) -> Iterator[CheckResult]:
    """Check that the file system is durable, supports locks, and has free space."""
    kind = file_system_of(directory, mounts=mounts)
    if kind in _REMOTE:
        detail = f"{kind} is a network file system, where locks and flushes are unreliable; use a local disk"
        yield fail("file system", detail)
    elif kind in _VOLATILE:
        yield warn("file system", f"{kind} is lost at a reboot; use a disk for durable memory")
    else:
        yield ok("file system", kind or "unknown type")
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    little = warn("free space", f"{free // 1024} KiB left; free some space")
    yield little if free < LITTLE_SPACE else ok("free space", f"{free // 1024**2} MiB left")
    if space.f_files and space.f_favail < LITTLE_FILES:  # some file systems count none
        yield warn("free space", f"room for {output.count(space.f_favail, 'file')}; remove some files")


def store_findings(home: MemoryHome) -> Iterator[CheckResult]:
    """Check that a store answers, is of this version, may erase what is forgotten, and is not held up."""
    found = home.survey()
    if found is None:
        yield warn("store", f"{home.title} answers, but nothing is kept there yet; memfiles restore creates it")
        return
    where = f"PostgreSQL {found.server} as {found.role}, workspace {found.workspace}"
    yield ok("store", f"{where}, answers in {found.answer_ms:g} ms")
    if found.schema_version < found.known_version:
        yield fail("store schema", f"version {found.schema_version}; its owner upgrades it with memfiles restore")
    else:
        yield ok("store schema", f"{found.schema} at version {found.schema_version}")
    if found.is_standby:
        yield fail("store standby", "this server is a standby and takes no changes; use the primary, or "
                   "target_session_attrs=read-write in the URL")  # fmt: skip
    if found.lacks:
        yield fail("store rights", f"{found.role} lacks {found.lacks}; the owner runs postgres-role.sql of the docs")
    if not found.may_erase:
        yield warn("store erasing", f"{found.role} cannot remove forgotten text from dead rows; from PostgreSQL 17 on, "
                   f"GRANT MAINTAIN ON {found.schema}.records, {found.schema}.quarantine TO {found.role}; on older "
                   f"servers, the owner vacuums after each forget")  # fmt: skip
    pool = f"{found.connections} of {output.count(found.pool, 'connection')}"
    if found.is_pooled:
        yield warn("store pool", f"{pool}, behind a pooler: this works, but changes by others are found by polling "
                   f"twice a second")  # fmt: skip
    else:
        yield ok("store pool", f"{pool}, changes are announced by LISTEN")
    if found.open_transactions:
        yield ok("store feed", f"{output.count(found.open_transactions, 'transaction')} open; until they end, "
                 f"later changes are reported again, and forgotten text may stay in dead rows")  # fmt: skip
    else:
        yield ok("store feed", "not held up")


def check_records(home: MemoryHome, files: tuple[MemoryFile, ...]) -> Iterator[CheckResult]:
    """Check that each declared file's record is readable, matches its digest and keeps its cap."""
    sound = 0
    for file in files:
        try:
            with home.reading() as records:
                record = stored_record(records, file.uid)
        except RecordCorrupt as error:
            remedy = "memfiles restore moves it to quarantine and starts again with the declared content"
            yield fail(f"record {file.name}", f"{str(error).removeprefix(f'record {file.uid}: ')}; {remedy}")
            continue
        except StorageFailed as error:
            yield fail(f"record {file.name}", str(error))
            continue
        if record is None:
            yield warn(f"record {file.name}", "not on disk yet; memfiles restore writes the declared content")
        elif not record.is_intact:
            yield warn(f"record {file.name}", "edited by hand; memfiles restore records the edit as a revision")
        elif record.size_bytes > file.max_size_bytes:
            size = f"{record.size_bytes} bytes, over its cap of {file.max_size_bytes}"
            yield warn(f"record {file.name}", f"{size}; shorten it with memfiles open {file.name}")
        else:
            sound += 1
    if sound:
        yield ok("records", f"{sound} of {len(files)} readable, with correct digests, within their caps")


def check_leftovers(directory: Path, files: tuple[MemoryFile, ...]) -> Iterator[CheckResult]:
    """Report temp files, copies of records under other names, and records that nobody declared."""
    names = names_in(directory)
    every = [*names, *_entry_files(directory)]
    temps = [path for path in every if keys.staged_path(path) is not None]
    left = warn("temp files", f"{len(temps)} left by a writer that died; the next start removes them")
    yield left if temps else ok("temp files", "none")
    declared = {file.uid for file in files}
    copies = [path for path in every if _is_copy(path, declared) and (directory / path).is_file()]
    if copies:
        yield warn(
            "copies of records", f"{len(copies)}, such as {copies[0]}; delete them, as forgetting does not reach them"
        )
    orphans = [uid for name in names if (uid := keys.uid_of(name)) is not None and uid not in declared]
    why = "on disk but not declared, so invisible to agents; declare them or move them away"
    yield warn("orphans", f"{', '.join(orphans)}: {why}") if orphans else ok("orphans", "none")


def check_kept(home: MemoryHome, folder: str) -> Iterator[CheckResult]:
    """Report the copies of records kept in quarantine or conflicts, and why."""
    kept = kept_in(home, folder)
    for path, reason in kept:
        if path == folder:  # it cannot be listed
            yield fail(folder, reason)
        else:
            yield warn(folder, f"{path}: {reason}. Save what you need from it, then delete it")
    if not kept:
        yield ok(folder, "none")


def check_locks_and_journals(directory: Path) -> Iterator[CheckResult]:
    """Check that the locks can be taken and the audit can be written, and count the journals."""
    why = "is on a file system that is mounted read-only" if _is_read_only(directory) else ""
    for name, folder in (("locks", directory / LOCKS), ("audit", directory / AUDIT)):
        if not os.path.lexists(folder):
            yield ok(name, f"{folder} (created when needed)")
        elif (path := _unusable(folder)) is None:
            yield ok(name, str(folder))
        else:
            kind = "folder" if path == folder else "file"
            no_rights = f"is not a {kind} writable by you; use chown or chmod, as for the directory"
            yield fail(name, f"{path} {why or no_rights}")
    journals = names_in(directory / JOURNALS)
    running = "of running processes, or replayed at the next start" if journals else "everything is in the records"
    yield ok("journals", f"{len(journals)}: {running}")


def _unusable(folder: Path) -> Path | None:
    """The folder, or a month of the audit in it, that cannot be written; a link there is never followed."""
    if folder.is_symlink() or not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return folder
    months = (it for it in folder.glob("*.jsonl") if it.is_symlink() or not it.is_file() or not os.access(it, os.W_OK))
    return next(months, None)


def file_system_of(path: Path, *, mounts: Path = MOUNTS) -> str | None:
    """The type of the file system of ``path``, None if the system does not tell."""
    try:
        rows = [line.split() for line in mounts.read_text(errors="replace").splitlines()]
    except OSError:
        return None
    resolved = path.resolve()
    kinds = {row[1].replace("\\040", " "): row[2] for row in rows if len(row) > 2}
    return next((kinds[str(place)] for place in (resolved, *resolved.parents) if str(place) in kinds), None)


def names_in(folder: Path) -> list[str]:
    """The names in a folder; none if it does not exist."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _json_in(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


Tallies = dict[tuple[str, str], Counter[str]]
"""By folder and level: the numbers of live, expired, retired and forgotten entries; ``size_bytes`` of the live ones."""


def check_entries(workflow: Workflow, progress: Progress | None = None) -> Iterator[CheckResult]:
    """Check that the entries are readable, belong to declared agents, and keep their budgets."""
    declared = workflow.memory.entries
    with (home := home_of(workflow.place)).reading() as records:
        if records is not None:
            yield from _entry_findings(workflow, records, progress)
    if declared is not None and home.directory is not None:
        index = home.directory / INDEX
        about = f", {index.stat().st_size // 1024} KiB; derived, rebuilt automatically" if index.is_file() else ""
        yield ok("entry index", f"{index}{about or ' (created when needed)'}")


def _entry_findings(workflow: Workflow, records: ReadableStore, progress: Progress | None) -> Iterator[CheckResult]:
    declared = workflow.memory.entries
    there, unlisted = listed_in(records)
    for folder, why in unlisted.items():
        yield fail(f"folder {folder}", f"{why}; its entries are left out until it can be")
    found = [path for path in sorted(there) if keys.entry_place(path) is not None]
    paths = [path for path in found if not keys.is_file_path(path)]
    yield from _files_of_users(workflow, records, [path for path in found if keys.is_file_path(path)])
    if declared is None:
        paths = [path for path in paths if not keys.is_id_path(path)]  # forgotten users, whose files are not entries
        if paths:
            remedy = "but none are declared: agents do not see them; add `entries: {}` under memory"
            yield warn("entries", f"{output.entries(len(paths))} on disk, {remedy}")
        return
    tallies, broken = census(records, reported(paths, progress))
    for path, why in broken[:NAMED]:
        yield warn(f"record {path}", why)
    if len(broken) > NAMED:
        yield warn("entries", f"{len(broken) - NAMED} more records cannot be read")
    for (folder, level), tally in sorted(tallies.items()):
        yield from _folder_findings(workflow, declared, folder, level, live=tally["live"], size=tally["size_bytes"])
    total = sum(tallies.values(), Counter[str]())
    known = {"expired": "expired", "retired": "deleted or evicted", "forgotten": "forgotten"}
    others = "".join(f", {total[name]} {said}" for name, said in known.items() if total[name])
    yield ok("entries", f"{output.entries(total['live'])}, {total['size_bytes']} bytes{others}")


def _folder_findings(
    workflow: Workflow, declared: EntriesSpec, folder: str, level: str, *, live: int, size: int
) -> Iterator[CheckResult]:
    """Check that the live entries of a folder at one level are within the budget, and that someone sees them."""
    if live > declared.max_entries or size > declared.max_bytes:
        used = f"{output.entries(live)} of {declared.max_entries}, {size} bytes of {declared.max_bytes}"
        yield warn("entries over budget", f"{folder} at {level}: {used}; the next save there evicts some")
    agent = folder.partition(f"/{keys.USERS}/")[0]
    is_declared = agent in {keys.WORKSPACE, *map(keys.agent_folder, workflow.agents)}
    if live and not (is_declared and level in workflow.memory.levels):
        held = f"{agent} at {level}: {output.entries(live)} of an undeclared"
        yield warn("entries of nobody", f"{held} {'level' if is_declared else 'agent'}; nobody sees them")


def _files_of_users(workflow: Workflow, records: Records, paths: list[str]) -> Iterator[CheckResult]:
    """Check that the memory files of users are readable, and of files that are declared per user."""
    declared = {file.uid: file for file in workflow.memory.files if file.per is not None}
    count = 0
    for path in paths:
        record = _entry_at(records, path)
        if isinstance(record, str):
            yield warn(f"record {path}", record)
        elif isinstance(record, Entry):
            count += 1
            if record.key not in declared:
                yield warn(f"record {path}", f"{record.key} is not declared per user; no session sees it")
            elif record.size_bytes > (cap := declared[record.key].max_size_bytes):
                yield warn(f"record {path}", f"{record.size_bytes} bytes, over the cap of {cap}: it may only shrink")
    if declared or count:
        yield ok("files of users", f"{output.count(count, 'record')} of {output.count(len(declared), 'file')}")


def census(records: Records, paths: Iterable[str]) -> tuple[Tallies, list[tuple[str, str]]]:
    """The tallies by folder and level, and the paths that cannot be read and why."""
    tallies: Tallies = defaultdict(Counter)
    broken: list[tuple[str, str]] = []
    now = utc_now()
    for path in paths:
        record = _entry_at(records, path)
        if isinstance(record, str):
            broken.append((path, record))
        elif isinstance(record, Entry) and record.is_live(now):
            tallies[record.folder, record.level].update(live=1, size_bytes=record.size_bytes)
        elif record is not None:
            state = "forgotten" if not isinstance(record, Entry) else "retired" if record.retired else "expired"
            tallies[record.folder, record.level][state] += 1
    return dict(tallies), broken


def _entry_at(records: Records, path: str) -> EntryRecord | str | None:
    """The record at a path, or the reason why it cannot be read; None if there is none."""
    try:
        found = records.find(path)
        return decode_entry(found[0], path=path) if found else None
    except OSError as error:
        return f"{reason_of(error)}; it is left out until it can be read"
    except RecordCorrupt as error:
        return f"{str(error).removeprefix(f'record {path}: ')}; it is ignored until you repair or delete it"


def _is_copy(path: str, uids: Collection[str]) -> bool:
    """Whether a file that is not a record has the name of one, such as an editor's backup or a conflict copy."""
    if keys.uid_of(path) is not None or keys.entry_place(path) is not None or keys.staged_path(path) is not None:
        return False
    stem, suffix, rest = path.rpartition("/")[2].lstrip(".#~").partition(keys.RECORD_SUFFIX)
    words = stem.split(" ") if suffix and not rest[:1].isalnum() else ()
    return any(word in uids or _ENTRY_UID.match(word) for word in (*words[:1], *words[-1:]))


def _entry_files(directory: Path) -> list[str]:
    """The paths of all files in the folders of entries, relative to the memory directory."""
    agents = [f"{keys.ENTRIES}/{name}" for name in names_in(directory / keys.ENTRIES)]
    users = [f"{agent}/{keys.USERS}/{name}" for agent in agents for name in names_in(directory / agent / keys.USERS)]
    return [f"{folder}/{name}" for folder in (*agents, *users) for name in names_in(directory / folder)]
