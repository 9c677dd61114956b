"""The error tree: every error that memfiles raises, with a stable code and an exit code of the command line.

Signals between two modules are not in the tree, as none of them leaves memfiles: ``LeftBehind``, ``PackDamaged`` and
``ModelUnavailable``, and in the S3 mirror ``PreconditionFailed`` and ``NoSuchObject``.
"""

from __future__ import annotations

from typing import ClassVar


class MemfilesError(Exception):
    """The root of every error that memfiles raises.

    ``code`` is stable, for programs; ``transient`` says whether the same call may succeed when it is repeated;
    ``exit_code`` is the exit code of the command line.
    """

    code: ClassVar[str] = "error"
    transient: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init_subclass__(
        cls, *, code: str | None = None, transient: bool | None = None, exit_code: int | None = None
    ) -> None:
        """Set the three on a class of errors; those left out are inherited."""
        super().__init_subclass__()
        cls.code = cls.code if code is None else code
        cls.transient = cls.transient if transient is None else transient
        cls.exit_code = cls.exit_code if exit_code is None else exit_code


class WorkflowError(MemfilesError, code="workflow"):
    """The workflow is invalid; the message starts with ``file:line:column: path:`` where known."""


class InvalidArgument(MemfilesError, code="invalid_argument", exit_code=2):
    """An argument has the wrong type or is out of range."""


class FileNotDeclared(MemfilesError, code="file_not_declared", exit_code=3):
    """The memory file does not exist or is hidden from the caller; both look the same."""


class EntryNotFound(MemfilesError, code="entry_not_found", exit_code=3):
    """The entry does not exist or is hidden from the caller; both look the same."""


class EditNoMatch(MemfilesError, code="edit_no_match", exit_code=3):
    """The text to replace does not occur in the file; the message shows the nearest line."""


class EmptyText(MemfilesError, code="empty_text", exit_code=2):
    """The text to find is empty, which would match everywhere."""


class SizeExceeded(MemfilesError, code="size_exceeded", exit_code=5):
    """The change would exceed the file's cap; nothing was written."""


class BudgetExceeded(MemfilesError, code="budget_exceeded", exit_code=5):
    """One entry alone is larger than a whole budget; nothing was written and nothing evicted."""


class RevisionConflict(MemfilesError, code="revision_conflict", exit_code=4):
    """The record changed since the caller read it; read it again and decide again."""


class RevisionUnknown(MemfilesError, code="revision_unknown", exit_code=3):
    """The bounded history no longer, or not yet, holds that revision."""


class ReadOnly(MemfilesError, code="read_only", exit_code=6):
    """The agent's reference has mode ``r``."""


class LevelDenied(MemfilesError, code="level_denied", exit_code=6):
    """The session's level does not allow this."""


class SecretRefused(MemfilesError, code="secret_refused", exit_code=6):
    """The text appears to contain a credential; the message names the rule and offset, never the value."""


class RecordCorrupt(MemfilesError, code="record_corrupt"):
    """A record on disk is missing, unreadable, or not the one asked for."""


class LockTimeout(MemfilesError, code="lock_timeout", transient=True, exit_code=4):
    """Another process or thread held the record for longer than the caller's timeout."""


class StorageFailed(MemfilesError, code="storage_failed", transient=True):
    """The disk refused the change (full, read-only, failing); memory and disk are unchanged."""


class StorageRefused(StorageFailed, code="storage_refused", transient=False):
    """The store refuses: access denied, no such database or schema, a version that this program does not know."""


class OutcomeUnknown(MemfilesError, code="outcome_unknown"):
    """The change may have been made: its flush failed, so a power cut may undo it, or a store's answer was lost."""


class MirrorUnavailable(MemfilesError, code="mirror_unavailable", transient=True, exit_code=7):
    """The mirror is down, slow or refuses; local work continues."""


class MirrorRefused(MirrorUnavailable, code="mirror_refused", transient=False):
    """The mirror refuses: access denied, no such bucket, a body over its limit."""


class CopyRefused(MirrorRefused, code="copy_refused"):
    """One object in the mirror, of ``version`` if known: not signed, with a false signature, or not usable here."""

    def __init__(self, message: str, *, version: str | None = None) -> None:
        super().__init__(message)
        self.version = version


class MirrorConflict(MemfilesError, code="mirror_conflict", transient=True, exit_code=4):
    """The mirror's copy is not at the expected version."""


class ExtraMissing(MemfilesError, code="extra_missing"):
    """A feature needs a package that is not installed; the message says how to install it."""


def reason_of(error: Exception) -> str:
    """Why a call to the system failed, in its own words, without the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
