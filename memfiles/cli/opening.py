"""How a command gets at the memory: ``view`` to look without touching the disk, ``writing`` to change.

The rule this file guards: a command that only looks creates and changes nothing, unless a process died here:
then what that one had promised is put in place first, so that no look shows less than was acknowledged. It
shows what an agent would find if it started now, also before the first restore: the record on disk under its
declared name and cap, or else the declared content.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from memfiles.cli import output
from memfiles.cli.failures import NotFound
from memfiles.cli.settings import current
from memfiles.cli.with_mirror import mirrored
from memfiles.errors import FileNotDeclared, RecordCorrupt
from memfiles.files.manager import MemoryManager
from memfiles.files.restore_report import FileReport, FileView, RestoreReport
from memfiles.memory import load, look
from memfiles.records.file_changes import FileCard
from memfiles.records.record import Actor
from memfiles.sync import NullSync, Sync
from memfiles.workflow.workflow import Workflow

AUTHOR = "cli"


@dataclass(frozen=True)
class MemoryView:
    """The declared files as they are, in the order of the workflow, and the report of the plan."""

    workflow: Workflow
    report: RestoreReport
    files: tuple[FileView, ...]
    sync: Sync | NullSync

    def card(self, uid: str) -> FileCard:
        """The card of a declared file, as the manager gives it."""
        for file in self.files:
            if file.record.uid == uid:
                return file.card
        raise FileNotDeclared(f"there is no memory file {uid}")

    def find(self, name: str) -> FileView:
        """The file of that name or uid, if its record can be read."""
        uid = find_uid(self.workflow, name)
        file = next(file for file in self.files if file.record.uid == uid)
        if file.report.status == "quarantined":
            raise RecordCorrupt(
                f"the record of {file.record.name} cannot be read ({file.report.detail}); `memfiles restore` sets it "
                f"aside in quarantine and goes on with the declared content"
            )
        return file


class Author(TypedDict):
    """Who makes a change, as the manager takes it."""

    call_id: str | None
    by: Actor


@dataclass(frozen=True)
class Writing:
    """A file that is about to be changed by a person."""

    workflow: Workflow
    manager: MemoryManager
    uid: str
    caller: Author


def load_workflow() -> Workflow:
    """The workflow named on the command line."""
    quiet_log()
    path = Path(current().workflow)
    if not path.exists():
        raise NotFound(f"there is no workflow {path}: write one with `memfiles init`, or name yours with -w PATH")
    return load(path)


def view() -> MemoryView:
    """The memory as it is on disk, nothing restored."""
    workflow = load_workflow()
    with look(workflow, warn=output.warn) as memory:
        report = memory.report
        files = tuple(memory.manager.view(file, report[file.uid]) for file in workflow.memory.files)
        return MemoryView(workflow, report, files, memory.sync)


@contextmanager
def writing(name: str, *, call_id: str | None) -> Iterator[Writing]:
    """The file of that name or uid, restored and ready to be changed; a wrong name touches nothing."""
    workflow = load_workflow()
    uid = find_uid(workflow, name)
    with mirrored(workflow) as memory:
        yield Writing(workflow, memory.manager, uid, Author(call_id=call_id, by=Actor(session=AUTHOR, call=call_id)))


def find_uid(workflow: Workflow, name: str) -> str:
    """The uid of the declared file called ``name``, or with that uid."""
    files = workflow.memory.files
    for known in ({file.name: file.uid for file in files}, {file.uid: file.uid for file in files}):
        if name in known:
            return known[name]
    names = [file.name for file in files]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"declared are: {', '.join(names) or 'none'}"
    raise FileNotDeclared(f"there is no memory file {name!r}: {hint}")


def listed(file: FileView) -> dict[str, Any]:
    """The JSON object for one file in a list: its card, share and state."""
    known = {"share": round(file.share, 4), "state": file.report.status, "detail": file.report.detail}
    return file.card.to_dict() | known


def state_of(report: FileReport) -> str:
    """The state of a file in one or two words."""
    return report.status + (", over cap" if report.over_cap else "")


def quiet_log() -> None:
    """Keep the library's log off stderr, unless --debug asks for it: errors are reported once, by us."""
    if not current().debug:
        logging.getLogger("memfiles").addHandler(logging.NullHandler())
