"""``doctor``: everything a support person would look at, as a list of ok, warn and fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from memfiles.cli import output
from memfiles.cli.doctor import directory_checks as checks
from memfiles.cli.doctor.directory_checks import CheckResult
from memfiles.cli.doctor.entry_checks import check_entries
from memfiles.cli.doctor.mirror_checks import check_conflicts, check_mirror, check_pending
from memfiles.cli.failures import failure_of
from memfiles.cli.help_text import example
from memfiles.cli.opening import quiet_log
from memfiles.cli.settings import current, shared_options
from memfiles.errors import MemfilesError

_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor", epilog=example("memfiles doctor --json"))
@shared_options
def doctor_command() -> None:
    """Look for everything that can be wrong and say what to do.

    Nothing is changed. A mirror is asked, for 5 seconds at most; one that is not Amazon's also gets a small
    object of our own, which is taken away again. The exit code is 1 if a check fails.
    """
    quiet_log()
    findings = list(look(Path(current().workflow)))
    failed = any(finding.state == "fail" for finding in findings)
    if current().json:
        output.data({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            mark = click.style(f"{finding.state:<4}", fg=_COLORS[finding.state])
            output.line(f"{mark}  {output.one_line(finding.check)}: {output.one_line(finding.detail)}")
    click.get_current_context().exit(1 if failed else 0)


def look(path: Path) -> Iterator[CheckResult]:
    """Every finding, in the order in which trouble is best mended."""
    yield from checks.check_platform()
    workflow, findings = checks.load_checked(path)
    yield from findings
    if workflow is None:
        return
    directory, files = workflow.directory, workflow.memory.files
    yield from _told("editor schema", checks.check_schema_comment(path))
    yield from _told("directory", checks.check_directory(directory))
    if directory.is_dir():
        yield from _told("file system", checks.check_file_system(directory))
        yield from _told("records", checks.check_records(directory, files))
        yield from _told("entries", check_entries(workflow))
        yield from _told("left-overs", checks.check_leftovers(directory, files))
        yield from _told("quarantine", checks.check_quarantine(directory))
        yield from _told("journals", checks.check_locks_and_journals(directory))
    yield from _told("mirror pending", check_pending(workflow))
    yield from _told("mirror", check_mirror(workflow))
    yield from _told("conflicts", check_conflicts(directory))


def _told(what: str, findings: Iterator[CheckResult]) -> Iterator[CheckResult]:
    """The findings; where the system does not let us look, that is one, and the others are told all the same."""
    try:
        yield from findings
    except (MemfilesError, OSError) as error:
        yield CheckResult("fail", what, f"cannot be looked at: {failure_of(error).message}")
