"""Memory that lasts, for LLM agents: declared in a workflow, kept as JSON records, changed through tools.

Everything named in ``__all__`` is loaded when it is first used, so that ``import memfiles`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memfiles.app import Memory, open
    from memfiles.card import index_card
    from memfiles.changes import Redaction
    from memfiles.errors import (
        EditNoMatch,
        EmptyText,
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
    from memfiles.events import RecordChanged
    from memfiles.manager import MemoryManager
    from memfiles.mirror import Mirror
    from memfiles.receipt import FileCard, Receipt
    from memfiles.record import Actor, Change, Record
    from memfiles.restoring import FileReport, RestoreReport
    from memfiles.session import Session
    from memfiles.tool_result import ToolResult
    from memfiles.toolset import tools
    from memfiles.visibility import validate_refs
    from memfiles.workflow import MemoryFile, MemoryRef, Workflow

    __version__: str

_MODULES = {
    "app": ("Memory", "open"),
    "card": ("index_card",),
    "changes": ("Redaction",),
    "errors": (
        "EditNoMatch",
        "EmptyText",
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
    "events": ("RecordChanged",),
    "manager": ("MemoryManager",),
    "mirror": ("Mirror",),
    "receipt": ("FileCard", "Receipt"),
    "record": ("Actor", "Change", "Record"),
    "restoring": ("FileReport", "RestoreReport"),
    "session": ("Session",),
    "tool_result": ("ToolResult",),
    "toolset": ("tools",),
    "visibility": ("validate_refs",),
    "workflow": ("MemoryFile", "MemoryRef", "Workflow"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Actor",
    "Change",
    "EditNoMatch",
    "EmptyText",
    "ExtraMissing",
    "FileCard",
    "FileNotDeclared",
    "FileReport",
    "InvalidArgument",
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
    "SecretRefused",
    "Session",
    "SizeExceeded",
    "StorageFailed",
    "ToolResult",
    "Workflow",
    "WorkflowError",
    "__version__",
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
