"""Every error memfiles raises, each with a stable code and the process exit code it maps to.

MemfilesError
├── WorkflowError        the declaration is wrong, at file:line:column
├── FileNotDeclared      no memory file of that uid or name
├── EntryNotFound        no entry of that key that the session may know of
├── EditNoMatch          the text to replace does not occur
├── EmptyText            a change was asked for with nothing to find
├── SizeExceeded         the change would pass the file's cap
├── BudgetExceeded       one entry alone is larger than a whole budget
├── RevisionConflict     the record is not at the revision the caller expected
├── RevisionUnknown      the history does not reach back to that revision
├── ReadOnly             the reference does not allow writing
├── LevelDenied          the session's level does not allow it
├── SecretRefused        the text holds something that looks like a credential
├── RecordCorrupt        what is on disk cannot be read as the record asked for
├── LockTimeout          someone else holds the record                     (transient)
├── StorageFailed        the disk refused: full, read-only, failing        (transient)
├── OutcomeUnknown       the change is visible, but its flush failed
├── MirrorUnavailable    the mirror does not answer                        (transient)
│   └── MirrorRefused    it answers that it will not: someone must mend that first
├── MirrorConflict       the mirror's copy changed meanwhile               (transient)
├── ExtraMissing         a part of the product needs a package that is not installed
└── InvalidArgument      a call was made with arguments of the wrong kind
"""

from __future__ import annotations

from typing import ClassVar


class MemfilesError(Exception):
    """The root of everything memfiles raises.

    ``code`` is stable and meant for programs; ``transient`` says whether the same call may succeed
    when it is made again; ``exit_code`` is what the command line ends with.
    """

    code: ClassVar[str] = "error"
    transient: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1


class WorkflowError(MemfilesError):
    """A workflow that cannot be used; its message starts with ``file:line:column: path:`` where known."""

    code = "workflow"


class InvalidArgument(MemfilesError):
    """A call with an argument of the wrong type or out of range."""

    code = "invalid_argument"
    exit_code = 2


class FileNotDeclared(MemfilesError):
    """There is no such memory file, or the caller may not know of it: both look the same."""

    code = "file_not_declared"
    exit_code = 3


class EntryNotFound(MemfilesError):
    """There is no such entry, or the caller may not know of it: both look the same."""

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
    """The change would make the file larger than its cap; nothing was written."""

    code = "size_exceeded"
    exit_code = 5


class BudgetExceeded(MemfilesError):
    """One entry alone is larger than a whole budget; nothing was written and nothing evicted."""

    code = "budget_exceeded"
    exit_code = 5


class RevisionConflict(MemfilesError):
    """The record changed since the caller read it; read again and decide anew."""

    code = "revision_conflict"
    exit_code = 4


class RevisionUnknown(MemfilesError):
    """The bounded history no longer (or not yet) holds that revision."""

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
    """The text looks like it holds a credential; the message names the rule and offset, never the value."""

    code = "secret_refused"
    exit_code = 6


class RecordCorrupt(MemfilesError):
    """A record on disk is missing, unreadable or another one than the one asked for."""

    code = "record_corrupt"


class LockTimeout(MemfilesError):
    """Another process or thread holds the record longer than the caller wanted to wait."""

    code = "lock_timeout"
    transient = True
    exit_code = 4


class StorageFailed(MemfilesError):
    """The disk refused the change (full, read-only, failing); memory and disk are as they were."""

    code = "storage_failed"
    transient = True


class OutcomeUnknown(MemfilesError):
    """The change is visible, but the flush that makes it durable failed: it may not survive a power cut."""

    code = "outcome_unknown"


class MirrorUnavailable(MemfilesError):
    """The mirror is down, slow or refuses; local work goes on."""

    code = "mirror_unavailable"
    transient = True
    exit_code = 7


class MirrorRefused(MirrorUnavailable):
    """The mirror answers, and refuses: access denied, no such bucket, a body beyond its limit."""

    code = "mirror_refused"
    transient = False


class MirrorConflict(MemfilesError):
    """The mirror's copy is not at the version the caller named."""

    code = "mirror_conflict"
    transient = True
    exit_code = 4


class ExtraMissing(MemfilesError):
    """A part of the product needs a package that is not installed; the message says how to install it."""

    code = "extra_missing"
