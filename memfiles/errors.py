"""The error tree: every error that memfiles raises, with a stable code and an exit code of the command line.

MemfilesError
├── WorkflowError        the workflow is invalid, at file:line:column
├── FileNotDeclared      no memory file has that uid or name
├── EntryNotFound        no entry of that key is visible to the session
├── EditNoMatch          the text to replace does not occur
├── EmptyText            the text to find is empty
├── SizeExceeded         the change would exceed the file's cap
├── BudgetExceeded       one entry alone is larger than a whole budget
├── RevisionConflict     the record is not at the expected revision
├── RevisionUnknown      the history does not hold that revision
├── ReadOnly             the reference does not allow writing
├── LevelDenied          the session's level does not allow it
├── SecretRefused        the text appears to contain a credential
├── RecordCorrupt        the record on disk cannot be read
├── LockTimeout          another writer holds the record                   (transient)
├── StorageFailed        the disk refused: full, read-only, failing        (transient)
├── OutcomeUnknown       the change is visible, but its flush failed
├── MirrorUnavailable    the mirror does not answer                        (transient)
│   └── MirrorRefused    the mirror refuses; its setup must be fixed first
│       └── CopyRefused  an object in the mirror is refused, and the others are not
├── MirrorConflict       the mirror's copy changed in the meantime         (transient)
├── ExtraMissing         a feature needs a package that is not installed
└── InvalidArgument      an argument has the wrong type or is out of range

Signals between two modules are not in the tree, as none of them leaves memfiles: ``LeftBehind``, ``PackDamaged`` and
``EmbedderUnavailable``, and in the S3 mirror ``NotMet`` and ``NoSuchObject``.
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


class WorkflowError(MemfilesError):
    """The workflow is invalid; the message starts with ``file:line:column: path:`` where known."""

    code = "workflow"


class InvalidArgument(MemfilesError):
    """An argument has the wrong type or is out of range."""

    code = "invalid_argument"
    exit_code = 2


class FileNotDeclared(MemfilesError):
    """The memory file does not exist or is hidden from the caller; both look the same."""

    code = "file_not_declared"
    exit_code = 3


class EntryNotFound(MemfilesError):
    """The entry does not exist or is hidden from the caller; both look the same."""

    code = "entry_not_found"
    exit_code = 3


class EditNoMatch(MemfilesError):
    """The text to replace does not occur in the file; the message shows the nearest line."""

    code = "edit_no_match"
    exit_code = 3


class EmptyText(MemfilesError):
    """The text to find is empty, which would match everywhere."""

    code = "empty_text"
    exit_code = 2


class SizeExceeded(MemfilesError):
    """The change would exceed the file's cap; nothing was written."""

    code = "size_exceeded"
    exit_code = 5


class BudgetExceeded(MemfilesError):
    """One entry alone is larger than a whole budget; nothing was written and nothing evicted."""

    code = "budget_exceeded"
    exit_code = 5


class RevisionConflict(MemfilesError):
    """The record changed since the caller read it; read it again and decide again."""

    code = "revision_conflict"
    exit_code = 4


class RevisionUnknown(MemfilesError):
    """The bounded history no longer, or not yet, holds that revision."""

    code = "revision_unknown"
    exit_code = 3


class ReadOnly(MemfilesError):
    """The agent's reference has mode ``r``."""

    code = "read_only"
    exit_code = 6


class LevelDenied(MemfilesError):
    """The session's level does not allow this."""

    code = "level_denied"
    exit_code = 6


class SecretRefused(MemfilesError):
    """The text appears to contain a credential; the message names the rule and offset, never the value."""

    code = "secret_refused"
    exit_code = 6


class RecordCorrupt(MemfilesError):
    """A record on disk is missing, unreadable, or not the one asked for."""

    code = "record_corrupt"


class LockTimeout(MemfilesError):
    """Another process or thread held the record for longer than the caller's timeout."""

    code = "lock_timeout"
    transient = True
    exit_code = 4


class StorageFailed(MemfilesError):
    """The disk refused the change (full, read-only, failing); memory and disk are unchanged."""

    code = "storage_failed"
    transient = True


class OutcomeUnknown(MemfilesError):
    """The change is visible, but its flush failed: it may not survive a power cut."""

    code = "outcome_unknown"


class MirrorUnavailable(MemfilesError):
    """The mirror is down, slow or refuses; local work continues."""

    code = "mirror_unavailable"
    transient = True
    exit_code = 7


class MirrorRefused(MirrorUnavailable):
    """The mirror refuses: access denied, no such bucket, a body over its limit."""

    code = "mirror_refused"
    transient = False


class CopyRefused(MirrorRefused):
    """One object in the mirror is refused: its signature does not verify, it has none, or it is too large."""

    code = "copy_refused"


class MirrorConflict(MemfilesError):
    """The mirror's copy is not at the expected version."""

    code = "mirror_conflict"
    transient = True
    exit_code = 4


class ExtraMissing(MemfilesError):
    """A feature needs a package that is not installed; the message says how to install it."""

    code = "extra_missing"
