"""Implementations of ``memfiles.mirror.Mirror``, and wrappers that add a behaviour to any of them.

    stores      DirectoryMirror   HttpMirror   MemoryMirror   S3Mirror
    wrappers    CountingMirror   FaultyMirror   LateMirror   PrefixedMirror   RetryingMirror
    by URL      open_mirror
    exam        mirrors.testing

Everything named in ``__all__`` is loaded when it is first used: a program pays for the store that it has.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrors.counting import CountingMirror
    from mirrors.directory import DirectoryMirror
    from mirrors.faulty import FaultyMirror
    from mirrors.http import HttpMirror
    from mirrors.late import LateMirror
    from mirrors.memory import MemoryMirror
    from mirrors.prefixed import PrefixedMirror
    from mirrors.retrying import RetryingMirror
    from mirrors.s3.mirror import S3Mirror
    from mirrors.urls import open_mirror

_MODULE_OF = {
    "CountingMirror": "counting",
    "DirectoryMirror": "directory",
    "FaultyMirror": "faulty",
    "HttpMirror": "http",
    "LateMirror": "late",
    "MemoryMirror": "memory",
    "PrefixedMirror": "prefixed",
    "RetryingMirror": "retrying",
    "S3Mirror": "s3.mirror",
    "open_mirror": "urls",
}

__all__ = [
    "CountingMirror",
    "DirectoryMirror",
    "FaultyMirror",
    "HttpMirror",
    "LateMirror",
    "MemoryMirror",
    "PrefixedMirror",
    "RetryingMirror",
    "S3Mirror",
    "open_mirror",
]


def __getattr__(name: str) -> Any:
    """Load a public name from the module it stands in (PEP 562), once."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'mirrors' has no attribute {name!r}")
    value = getattr(import_module(f"mirrors.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
