"""What ``memfiles doctor`` looks at in the mirror, within a few seconds, whatever the mirror does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from memfiles.cli import output
from memfiles.cli.doctor.directory_checks import CheckResult
from memfiles.cli.with_mirror import name_of, pending_in
from memfiles.errors import MemfilesError, MirrorRefused, RecordCorrupt
from memfiles.memory import open_mirror_of
from memfiles.records.keys import record_path, uid_of
from memfiles.records.record import decode
from memfiles.sync.mirror import Mirror, shortcomings_of
from memfiles.sync.status import kept_conflicts, status_on_disk
from memfiles.workflow.workflow import Workflow

PATIENCE_SECONDS = 5.0
ReportCheck = Callable[[CheckResult], None]


def check_pending(workflow: Workflow) -> Iterator[CheckResult]:
    """Whether the mirror has what was changed here, and what last kept it from getting it."""
    status = status_on_disk(workflow)
    if status.mirror is None:
        return
    if status.pending:
        yield CheckResult("warn", "mirror pending", f"{pending_in(status, workflow=workflow)}: memfiles sync push")
    else:
        yield CheckResult("ok", "mirror pending", "nothing")
    if status.last_error:
        yield CheckResult("warn", "mirror last error", status.last_error)


def check_mirror(workflow: Workflow, *, seconds: float = PATIENCE_SECONDS) -> Iterator[CheckResult]:
    """Whether the mirror answers, keeps its promises, and holds copies that can be used.

    It is asked by a thread that is left behind after so many ``seconds``.
    """
    mirror = open_mirror_of(workflow)
    if mirror is None:
        return
    findings: list[CheckResult] = []
    asking = threading.Thread(target=_ask, args=(mirror, workflow, findings.append), daemon=True)
    asking.start()
    asking.join(seconds)
    is_late = asking.is_alive()
    yield from list(findings)
    if is_late and not findings:
        yield CheckResult("fail", "mirror", f"no answer within {seconds:g} s: check its address and the network")
    elif is_late:
        yield CheckResult("warn", "mirror copies", f"not all were looked at within {seconds:g} s: the mirror is slow")


def check_conflicts(directory: Path) -> Iterator[CheckResult]:
    """What lost against another change, and why."""
    kept = kept_conflicts(directory)
    for path, reason in kept:
        yield CheckResult("warn", "conflicts", f"{path}: {reason}. Take out what is worth keeping, then delete it")
    if not kept:
        yield CheckResult("ok", "conflicts", "none")


def _ask(mirror: Mirror, workflow: Workflow, found: ReportCheck) -> None:
    try:
        there = {key for key, _ in mirror.list()}
        declared = [record_path(file.uid) for file in workflow.memory.files]
        copies = [path for path in declared if path in there]
        found(CheckResult("ok", "mirror", f"it answers, and has a copy of {len(copies)} of {len(declared)} files"))
        _ask_for_promises(mirror, found)
        _ask_for_copies(mirror, copies, workflow=workflow, found=found)
    except MirrorRefused as error:
        advice = "check the name in memory.mirror.url, and that your credentials may list, read and write there"
        found(CheckResult("fail", "mirror", f"it refuses: {error}: {advice}"))
    except MemfilesError as error:
        advice = "work goes on here and is pushed later; check the network, the endpoint and the credentials"
        found(CheckResult("fail", "mirror", f"it does not answer: {error}: {advice}"))


def _ask_for_promises(mirror: Mirror, found: ReportCheck) -> None:
    for shortcoming in shortcomings_of(mirror, "doctor.json"):
        found(CheckResult("warn", "mirror promises", f"{shortcoming}; let only one machine write"))


def _ask_for_copies(mirror: Mirror, paths: list[str], *, workflow: Workflow, found: ReportCheck) -> None:
    sound = 0
    for path in paths:
        stored = mirror.get(path)
        if why := _fault_in(stored.body, path) if stored else None:
            remedy = "memfiles sync pull sets it aside in quarantine/ and puts the local record in its place"
            found(
                CheckResult("warn", f"mirror copy {name_of(workflow, path)}", f"{path} cannot be used: {why}: {remedy}")
            )
        else:
            sound += 1
    found(CheckResult("ok", "mirror copies", f"{output.count(sound, 'copy', 'copies')} readable, digests right"))


def _fault_in(body: bytes, path: str) -> str | None:
    try:
        record = decode(body, uid=uid_of(path) or "")
    except RecordCorrupt as error:
        return str(error)
    return None if record.is_intact else "its digest is wrong"
