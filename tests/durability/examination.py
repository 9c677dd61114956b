"""Looks at a memory directory after a disaster: everything must be there, and nothing that must not."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from memfiles.errors import MemfilesError
from memfiles.files.manager import MemoryManager
from tests.durability.operations import FILES, UIDS, Contents, append_to_all, contents_on_disk

_CALM = {"kept", "updated", "seeded"}


def examine(directory: Path, possible: Sequence[Contents]) -> list[str]:
    """What is wrong for the process that starts next; ``possible`` is what it may find in the files."""
    found, problems = start(directory)
    return problems if found in map(_declared_of, possible) else [*problems, f"the files hold {found}"]


def start(directory: Path) -> tuple[Contents, list[str]]:
    """What the process that starts next finds in the files, and what is wrong whatever they should hold."""
    found: Contents = {}
    problems: list[str] = []
    try:
        with MemoryManager(directory) as manager:
            report = manager.restore(FILES)
            statuses = {row.status for row in report.files}
            if not statuses <= _CALM or len(statuses) != 1:
                problems.append(f"the start reported {[(row.uid, row.status, row.detail) for row in report.files]}")
            found = {uid: manager.read(uid) for uid in UIDS}
            problems += _hidden(manager, found)
            own_journal = f".journal/{os.getpid()}-"
            problems += [problem for problem in leftovers(directory) if own_journal not in problem]
            problems += _not_writable(manager)
    except (MemfilesError, OSError, ValueError) as error:
        problems.append(f"the start failed: {error!r}")
    return found, problems + leftovers(directory)


def examine_by_living(manager: MemoryManager, possible: Sequence[Contents]) -> list[str]:
    """What is wrong for a process that was there all the time, and for the one that starts after it."""
    after = [{uid: state[uid] + f"- for all: {uid}\n" for uid in UIDS} for state in possible]
    try:
        with manager:
            append_to_all(manager)
            found = {uid: manager.read(uid) for uid in UIDS}
            problems = _hidden(manager, found)
            problems += [] if found in after else [f"the files hold {found}"]
    except (MemfilesError, OSError, ValueError) as error:
        return [f"the process that was there failed: {error!r}"]
    return problems + examine(manager.directory, after)


def leftovers(directory: Path) -> list[str]:
    """Temp files, journals of the dead, and anything in quarantine."""
    found = [path.relative_to(directory) for path in sorted(directory.rglob("*"))]
    left = [path for path in found if path.suffix == ".tmp" or _is_journal_or_kept(path)]
    return [f"left behind: {path}{_reason(directory / path)}" for path in left]


def _reason(path: Path) -> str:
    """Why it is in quarantine, if it is a note that says so."""
    return f": {path.read_text(errors='replace')}" if path.name.endswith(".reason.json") else ""


def _is_journal_or_kept(path: Path) -> bool:
    return len(path.parts) > 1 and path.parts[0] in {".journal", "quarantine"}


def unreadable(directory: Path, states: Sequence[Contents]) -> list[str]:
    """Records that are not whole, or hold what they never held, for whoever just opens them."""
    problems = []
    for path in sorted(directory.glob("*.json")):
        try:
            content = json.loads(path.read_bytes())["content"]
        except (ValueError, KeyError) as error:
            problems.append(f"{path.name} cannot be read: {error}")
        else:
            if content not in [state[path.stem] for state in states]:
                problems.append(f"{path.name} holds {content!r}")
    return problems


def _hidden(manager: MemoryManager, found: Contents) -> list[str]:
    same = found == _declared_of(contents_on_disk(manager.directory))
    return [] if same else ["what the manager reads is not what the disk holds"]


def _declared_of(state: Contents) -> Contents:
    return {uid: state[uid] for uid in UIDS}


def _not_writable(manager: MemoryManager) -> list[str]:
    """Whether the next write works."""
    before = manager.read("notes")
    manager.append("notes", "- still here\n")
    after = manager.read("notes")
    return [] if after == before + "- still here\n" else [f"the next write made {after!r}"]
