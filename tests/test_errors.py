"""The errors: one root, one tree, drawn where it can be read, and a stable code for each."""

from __future__ import annotations

import re

import pytest

import memfiles
from memfiles import errors
from memfiles.errors import MemfilesError


def all_below(root: type[MemfilesError]) -> list[type[MemfilesError]]:
    return [
        found
        for kind in root.__subclasses__()
        for found in (kind, *all_below(kind))
        if kind.__module__ == errors.__name__
    ]


ERRORS = all_below(MemfilesError)
EXIT_CODES = {
    "WorkflowError": 1,
    "InvalidArgument": 2,
    "EmptyText": 2,
    "FileNotDeclared": 3,
    "EntryNotFound": 3,
    "EditNoMatch": 3,
    "RevisionUnknown": 3,
    "RevisionConflict": 4,
    "MirrorConflict": 4,
    "LockTimeout": 4,
    "SizeExceeded": 5,
    "BudgetExceeded": 5,
    "ReadOnly": 6,
    "LevelDenied": 6,
    "SecretRefused": 6,
    "MirrorUnavailable": 7,
    "MirrorRefused": 7,
    "CopyRefused": 7,
    "RecordCorrupt": 1,
    "StorageFailed": 1,
    "StorageRefused": 1,
    "OutcomeUnknown": 1,
    "ExtraMissing": 1,
}


def test_every_error_has_a_code_of_its_own() -> None:
    """Programs tell errors apart by it; it is the name in snake case, so it can be guessed."""
    codes = {error.__name__: error.code for error in ERRORS}
    snake = {name: re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in codes}

    assert len(codes) == len(set(codes.values()))
    assert {**snake, "WorkflowError": "workflow"} == codes


def test_every_error_has_its_exit_code() -> None:
    """The command line's contract: 2 usage, 3 not found, 4 conflict, 5 cap, 6 denied, 7 mirror, 1 the rest."""

    assert EXIT_CODES == {error.__name__: error.exit_code for error in ERRORS}


@pytest.mark.parametrize("error", [MemfilesError, *ERRORS])
def test_every_error_is_public_and_explained(error: type[MemfilesError]) -> None:
    """Whoever catches it need not know the module it stands in."""

    assert error is getattr(memfiles, error.__name__)
    assert error.__name__ in dir(memfiles)
    assert (error.__doc__ or "").rstrip().endswith(".")
