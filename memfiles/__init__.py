"""Memory that lasts, for LLM agents: declared in a workflow, kept as JSON records, changed through tools.

Everything named in ``__all__`` is loaded when it is first used, so that ``import memfiles`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memfiles.errors import (
        BudgetExceeded,
        EditNoMatch,
        EmptyText,
        EntryNotFound,
        ExtraMissing,
        FileNotDeclared,
        InvalidArgument,
        LevelDenied,
        LockTimeout,
        MemfilesError,
        MirrorConflict,
        MirrorRefused,
        MirrorUnavailable,
        OutcomeUnknown,
        ReadOnly,
        RecordCorrupt,
        RevisionConflict,
        RevisionUnknown,
        SecretRefused,
        SizeExceeded,
        StorageFailed,
        WorkflowError,
    )
    from memfiles.files.manager import MemoryManager
    from memfiles.files.restore_report import FileReport, RestoreReport
    from memfiles.memory import Memory, open
    from memfiles.records.file_changes import Redaction
    from memfiles.records.receipt import FileCard, Receipt
    from memfiles.records.record import Actor, Change, Record
    from memfiles.secrets.gate import Leak, Scan, Scanner
    from memfiles.storage.events import RecordChanged
    from memfiles.sync.mirror import Mirror
    from memfiles.tools.compaction import FlushReport, flush_before_compaction
    from memfiles.tools.index_card import index_card
    from memfiles.tools.result import ToolResult
    from memfiles.tools.session import Session
    from memfiles.tools.toolset import tools
    from memfiles.tools.visibility import validate_refs
    from memfiles.workflow.workflow import MemoryFile, MemoryRef, Workflow

    __version__: str

_MODULES = {
    "memory": ("Memory", "open"),
    "tools.index_card": ("index_card",),
    "records.file_changes": ("Redaction",),
    "tools.compaction": ("FlushReport", "flush_before_compaction"),
    "errors": (
        "BudgetExceeded",
        "EditNoMatch",
        "EmptyText",
        "EntryNotFound",
        "ExtraMissing",
        "FileNotDeclared",
        "InvalidArgument",
        "LevelDenied",
        "LockTimeout",
        "MemfilesError",
        "MirrorConflict",
        "MirrorRefused",
        "MirrorUnavailable",
        "OutcomeUnknown",
        "ReadOnly",
        "RecordCorrupt",
        "RevisionConflict",
        "RevisionUnknown",
        "SecretRefused",
        "SizeExceeded",
        "StorageFailed",
        "WorkflowError",
    ),
    "storage.events": ("RecordChanged",),
    "files.manager": ("MemoryManager",),
    "sync.mirror": ("Mirror",),
    "records.receipt": ("FileCard", "Receipt"),
    "records.record": ("Actor", "Change", "Record"),
    "secrets.gate": ("Leak", "Scan", "Scanner"),
    "files.restore_report": ("FileReport", "RestoreReport"),
    "tools.session": ("Session",),
    "tools.result": ("ToolResult",),
    "tools.toolset": ("tools",),
    "tools.visibility": ("validate_refs",),
    "workflow.workflow": ("MemoryFile", "MemoryRef", "Workflow"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Actor",
    "BudgetExceeded",
    "Change",
    "EditNoMatch",
    "EmptyText",
    "EntryNotFound",
    "ExtraMissing",
    "FileCard",
    "FileNotDeclared",
    "FileReport",
    "FlushReport",
    "InvalidArgument",
    "Leak",
    "LevelDenied",
    "LockTimeout",
    "MemfilesError",
    "Memory",
    "MemoryFile",
    "MemoryManager",
    "MemoryRef",
    "Mirror",
    "MirrorConflict",
    "MirrorRefused",
    "MirrorUnavailable",
    "OutcomeUnknown",
    "ReadOnly",
    "Receipt",
    "Record",
    "RecordChanged",
    "RecordCorrupt",
    "Redaction",
    "RestoreReport",
    "RevisionConflict",
    "RevisionUnknown",
    "Scan",
    "Scanner",
    "SecretRefused",
    "Session",
    "SizeExceeded",
    "StorageFailed",
    "ToolResult",
    "Workflow",
    "WorkflowError",
    "__version__",
    "flush_before_compaction",
    "index_card",
    "open",
    "tools",
    "validate_refs",
]


def __getattr__(name: str) -> Any:
    """Load a public name from the module it stands in (PEP 562), once."""
    if name == "__version__":
        value: Any = _version()
    elif name in _MODULE_OF:
        value = getattr(import_module(f"memfiles.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'memfiles' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("memfiles")
    except PackageNotFoundError:
        return "0+not-installed"
