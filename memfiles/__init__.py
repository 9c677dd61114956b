"""Durable memory for LLM agents: declared in a workflow, kept as JSON records, changed through tools.

The public names load on first use, so ``import memfiles`` loads no library.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take the name for true; importing it from typing takes 5 ms

if TYPE_CHECKING:
    # The public names for type checkers, which follow these imports. ``as`` marks a name as public for them.
    from memfiles.errors import BudgetExceeded as BudgetExceeded
    from memfiles.errors import CopyRefused as CopyRefused
    from memfiles.errors import EditNoMatch as EditNoMatch
    from memfiles.errors import EmptyText as EmptyText
    from memfiles.errors import EntryNotFound as EntryNotFound
    from memfiles.errors import ExtraMissing as ExtraMissing
    from memfiles.errors import FileNotDeclared as FileNotDeclared
    from memfiles.errors import InvalidArgument as InvalidArgument
    from memfiles.errors import LevelDenied as LevelDenied
    from memfiles.errors import LockTimeout as LockTimeout
    from memfiles.errors import MemfilesError as MemfilesError
    from memfiles.errors import MirrorConflict as MirrorConflict
    from memfiles.errors import MirrorRefused as MirrorRefused
    from memfiles.errors import MirrorUnavailable as MirrorUnavailable
    from memfiles.errors import OutcomeUnknown as OutcomeUnknown
    from memfiles.errors import ReadOnly as ReadOnly
    from memfiles.errors import RecordCorrupt as RecordCorrupt
    from memfiles.errors import RevisionConflict as RevisionConflict
    from memfiles.errors import RevisionUnknown as RevisionUnknown
    from memfiles.errors import SecretRefused as SecretRefused
    from memfiles.errors import SizeExceeded as SizeExceeded
    from memfiles.errors import StorageFailed as StorageFailed
    from memfiles.errors import StorageRefused as StorageRefused
    from memfiles.errors import WorkflowError as WorkflowError
    from memfiles.files.manager import MemoryManager as MemoryManager
    from memfiles.files.restore_report import FileReport as FileReport
    from memfiles.files.restore_report import RestoreReport as RestoreReport
    from memfiles.memory import Memory as Memory
    from memfiles.memory import open as open
    from memfiles.records.file_changes import FileCard as FileCard
    from memfiles.records.file_changes import Receipt as Receipt
    from memfiles.records.file_changes import Redaction as Redaction
    from memfiles.records.graphemes import estimate_tokens as estimate_tokens
    from memfiles.records.record import Actor as Actor
    from memfiles.records.record import Change as Change
    from memfiles.records.record import Record as Record
    from memfiles.secrets.gate import Leak as Leak
    from memfiles.secrets.gate import Scan as Scan
    from memfiles.secrets.gate import Scanner as Scanner
    from memfiles.storage.events import RecordChanged as RecordChanged
    from memfiles.sync.mirror import Mirror as Mirror
    from memfiles.tools.compaction import FlushReport as FlushReport
    from memfiles.tools.compaction import flush_before_compaction as flush_before_compaction
    from memfiles.tools.compaction import remember as remember
    from memfiles.tools.results import ToolResult as ToolResult
    from memfiles.tools.session import Session as Session
    from memfiles.tools.session import tools as tools
    from memfiles.tools.visibility import index_card as index_card
    from memfiles.tools.visibility import validate_refs as validate_refs
    from memfiles.workflow.workflow import MemoryFile as MemoryFile
    from memfiles.workflow.workflow import MemoryRef as MemoryRef
    from memfiles.workflow.workflow import Workflow as Workflow

    __version__: str
else:  # hidden from type checkers: with a module ``__getattr__`` they would accept every misspelt name
    _NAMES = {  # the same list again: a package that is delivered without its source cannot read the imports above
        "errors": "BudgetExceeded CopyRefused EditNoMatch EmptyText EntryNotFound ExtraMissing FileNotDeclared "
        "InvalidArgument LevelDenied LockTimeout MemfilesError MirrorConflict MirrorRefused MirrorUnavailable "
        "OutcomeUnknown ReadOnly RecordCorrupt RevisionConflict RevisionUnknown SecretRefused SizeExceeded "
        "StorageFailed StorageRefused WorkflowError",
        "files.manager": "MemoryManager",
        "files.restore_report": "FileReport RestoreReport",
        "memory": "Memory open",
        "records.file_changes": "FileCard Receipt Redaction",
        "records.graphemes": "estimate_tokens",
        "records.record": "Actor Change Record",
        "secrets.gate": "Leak Scan Scanner",
        "storage.events": "RecordChanged",
        "sync.mirror": "Mirror",
        "tools.compaction": "FlushReport flush_before_compaction remember",
        "tools.results": "ToolResult",
        "tools.session": "Session tools",
        "tools.visibility": "index_card validate_refs",
        "workflow.workflow": "MemoryFile MemoryRef Workflow",
    }
    _HOMES = {name: f"memfiles.{module}" for module, names in _NAMES.items() for name in names.split()}

    def __getattr__(name):
        """Load a public name from its module, once (PEP 562)."""
        if name == "__all__":
            value = sorted({*_HOMES, "__version__"})
        elif name == "__version__":
            value = _version()
        elif name in _HOMES:
            from importlib import import_module

            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module 'memfiles' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOMES, "__version__"})

    def _version() -> str:
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("memfiles")
        except PackageNotFoundError:
            return "0+not-installed"
