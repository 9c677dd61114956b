"""``doctor``: every check as a list of ok, warn and fail, and the checks of the mirror."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec.structs import asdict

from memfiles.cli import output
from memfiles.cli.commands.sync import pending_in, unmirrored
from memfiles.cli.doctor import checks
from memfiles.cli.doctor.checks import CheckResult, fail, ok, warn
from memfiles.cli.failures import failure_of
from memfiles.cli.opening import name_of
from memfiles.cli.options import command, current
from memfiles.cli.output import quiet_log
from memfiles.errors import CopyRefused, MemfilesError, MirrorRefused, RecordCorrupt
from memfiles.memory import keeper_of, load, open_mirror_of
from memfiles.records.declared_metadata import decode_file
from memfiles.records.keys import record_path, uid_of
from memfiles.secrets.gate import scanner_called
from memfiles.storage import quarantine
from memfiles.storage.events import Progress
from memfiles.storage.fork_safety import start_thread
from memfiles.storage.home import MemoryHome, home_of
from memfiles.sync.mirror import Mirror, shortcomings_of
from memfiles.sync.status import status_on_disk
from memfiles.workflow.workflow import Workflow

PATIENCE_SECONDS = 5.0
_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


@command("doctor", "memfiles doctor --json")
def doctor_command() -> None:
    """Check for problems and suggest fixes.

    Nothing is changed. A mirror is checked for at most 5 seconds; if it is not Amazon's, doctor writes a small test
    object and removes it. The exit code is 1 if a check fails.
    """
    quiet_log()
    with output.progress("Checking") as shown:
        findings = list(look(Path(current().workflow), progress=shown))
    failed = any(finding.state == "fail" for finding in findings)
    if not output.as_json({"ok": not failed, "checks": [asdict(finding) for finding in findings]}):
        for finding in findings:
            mark = click.style(f"{finding.state:<4}", fg=_COLORS[finding.state])
            output.line(output.one_line(f"  {finding.check}: {finding.detail}"), mark=mark)
    click.get_current_context().exit(1 if failed else 0)


def look(path: Path, *, progress: Progress | None = None) -> Iterator[CheckResult]:
    """Every finding, in the order to fix them in; ``progress(done, total)`` is called for each entry that is read."""
    yield from _findings_of("platform", checks.check_platform())
    try:
        workflow = load(path)
        scanner_called(workflow.memory.secrets_scanner)
    except (MemfilesError, OSError) as error:
        yield fail("workflow", str(error))
        return
    home = home_of(workflow.place)
    files_declared, agents = len(workflow.memory.files), len(workflow.agents)
    declared = f"{output.count(files_declared, 'memory file')}, {output.count(agents, 'agent')}"
    yield ok("workflow", f"{path}: {declared}")
    yield from _findings_of("editor schema", checks.check_schema_comment(path))
    place = list(_findings_of("directory", checks.check_directory(home.directory)) if home.directory is not None
                 else _findings_of("store", checks.store_findings(home)))  # fmt: skip
    yield from place
    if home.directory is None and place[0].state == "fail":
        return  # everything else is there
    with home.held():
        for what, findings in _checks_of(workflow, home, progress) if home.exists() else ():
            yield from _findings_of(what, findings)
        yield from _findings_of("mirror pending", check_pending(workflow))
        with output.waiting("asking the mirror ..."):
            yield from _findings_of("mirror", mirror_findings(workflow))
        yield from _findings_of("conflicts", checks.check_kept(home, quarantine.CONFLICTS))


def _checks_of(
    workflow: Workflow, home: MemoryHome, progress: Progress | None
) -> Iterator[tuple[str, Iterator[CheckResult]]]:
    """The checks of what is kept, in the order to fix them in."""
    files, directory = workflow.shared_files, home.directory
    if directory is not None:
        yield "file system", checks.check_file_system(directory)
    yield "records", checks.check_records(home, files)
    yield "entries", checks.check_entries(workflow, progress)
    if directory is not None:
        yield "left-overs", checks.check_leftovers(directory, files)
    yield "quarantine", checks.check_kept(home, quarantine.FOLDER)
    if directory is not None:
        yield "journals", checks.check_locks_and_journals(directory)


def _findings_of(what: str, findings: Iterator[CheckResult]) -> Iterator[CheckResult]:
    """The findings; a check that raises anything is one itself, and the others still run."""
    try:
        yield from findings
    except Exception as error:
        if current().debug:
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        yield fail(what, f"cannot be checked: {failure_of(error).message}")


def check_pending(workflow: Workflow) -> Iterator[CheckResult]:
    """Check that nothing is pending, and report the mirror's last error."""
    status = status_on_disk(workflow)
    if status.mirror is None:
        return
    if status.pending:
        yield warn("mirror pending", f"{pending_in(status, workflow=workflow)}; run memfiles sync push")
    else:
        yield ok("mirror pending", "nothing")
    if why := unmirrored(workflow):
        yield warn("mirror entries", why)
    if status.last_error:
        yield warn("mirror last error", status.last_error)
    for why in [*status.refused.values()][: checks.NAMED]:
        yield fail("mirror refused", f"{why} ({len(status.refused)} in all)")


def mirror_findings(workflow: Workflow, *, seconds: float = PATIENCE_SECONDS) -> Iterator[CheckResult]:
    """Check that the mirror answers, keeps its promises, and holds usable copies.

    A thread asks it, and is left behind after ``seconds``.
    """
    mirror = open_mirror_of(workflow)
    if mirror is None:
        return
    if problem := keeper_of(workflow).problem:
        yield fail("mirror key", f"{problem}; nothing is pushed or pulled until then")
        return
    findings: list[CheckResult] = []
    unexpected: list[Exception] = []

    def ask() -> None:
        try:
            for finding in _answers(mirror, workflow):
                findings.append(finding)
        except Exception as error:
            unexpected.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    if start_thread(asking):
        asking.join(seconds)
    else:
        ask()
    is_late = asking.is_alive()
    yield from list(findings)
    if unexpected:
        raise unexpected[0]
    if is_late and not findings:
        yield fail("mirror", f"no answer within {seconds:g} s; check its address and the network")
    elif is_late:
        yield warn("mirror copies", f"not all checked within {seconds:g} s; the mirror is slow")


def _answers(mirror: Mirror, workflow: Workflow) -> Iterator[CheckResult]:
    try:
        there = {key for key, _ in mirror.list()}
        declared = [record_path(file.uid) for file in workflow.shared_files]
        copies = [path for path in declared if path in there]
        yield ok("mirror", f"answers, and has copies of {len(copies)} of {len(declared)} files")
        for shortcoming in shortcomings_of(mirror, "doctor.json"):
            yield warn("mirror promises", shortcoming)
        yield from _copies(mirror, copies, workflow=workflow)
    except MirrorRefused as error:
        advice = "check memory.mirror.url, and that your credentials may list, read and write there"
        yield fail("mirror", f"refuses: {error}; {advice}")
    except MemfilesError as error:
        advice = "check the network, the endpoint and the credentials; changes are kept here and pushed later"
        yield fail("mirror", f"does not answer: {error}; {advice}")


def _copies(mirror: Mirror, paths: list[str], *, workflow: Workflow) -> Iterator[CheckResult]:
    sound = 0
    for path in paths:
        check = f"mirror copy {name_of(workflow, path)}"
        try:
            stored = mirror.get(path)
        except CopyRefused as error:
            yield fail(check, f"refused: {error}")
            continue
        if stored and (why := _fault_in(stored.body, path)):
            remedy = "memfiles sync pull moves it to quarantine/ and pushes the local record"
            yield warn(check, f"{path} cannot be used: {why}; {remedy}")
        else:
            sound += 1
    yield ok("mirror copies", f"{output.count(sound, 'copy', 'copies')} readable, with correct digests")


def _fault_in(body: bytes, path: str) -> str | None:
    try:
        record = decode_file(body, uid=uid_of(path) or "")
    except RecordCorrupt as error:
        return str(error)
    return None if record.is_intact else "its digest is wrong"
