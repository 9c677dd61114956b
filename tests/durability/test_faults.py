"""A disk that is full, read-only or failing: clear errors, nothing changed, and the next write works again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from durability.conftest import Program
from durability.operations import OPERATIONS

WRITES = ["first append of a process", "append that makes the journal", "append to three files at once", "redeploy"]
EVERY_SEEN_ERROR = {None, "StorageFailed", "OutcomeUnknown"}


def _badly_taken(faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [fault for fault in faults if fault["problems"]]


@pytest.mark.usefixtures("require_tracing")
@pytest.mark.parametrize("lasting", [(), ("--lasting",)], ids=["once", "lasting"])
def test_any_call_may_fail(program: Program, scratch: Path, lasting: tuple[str, ...]) -> None:
    """With EIO at any call, once or until the caller is told, the caller is told right and can go on."""
    faults = program("durability.fault_sweep", scratch, "EIO", *OPERATIONS, *lasting)

    assert [] == _badly_taken(faults)
    assert EVERY_SEEN_ERROR == {fault["error"] for fault in faults}


@pytest.mark.usefixtures("require_tracing")
@pytest.mark.parametrize("lasting", [(), ("--lasting",)], ids=["once", "lasting"])
@pytest.mark.parametrize("error", ["ENOSPC", "EROFS", "EMFILE"])
def test_a_disk_may_refuse(error: str, program: Program, scratch: Path, lasting: tuple[str, ...]) -> None:
    """A full disk, a read-only one and too many open files: the same."""
    faults = program("durability.fault_sweep", scratch, error, *WRITES, *lasting)

    assert [] == _badly_taken(faults)
    assert "StorageFailed" in {fault["error"] for fault in faults}
