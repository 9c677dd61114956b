"""Implementations of ``memfiles.sync.mirror.Mirror``, and wrappers that add a behaviour to any of them.

    stores      DirectoryMirror   HttpMirror   MemoryMirror   S3Mirror
    wrappers    CountingMirror   FaultyMirror   LazyMirror (also LateMirror)   PrefixedMirror   SealedMirror
    by URL      open_mirror
    exam        mirrors.testing

Each name loads its module when first used: a program pays only for the store that it has.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrors.directory import DirectoryMirror
    from mirrors.faulty import FaultyMirror
    from mirrors.http import HttpMirror
    from mirrors.lazy import LateMirror, LazyMirror
    from mirrors.memory import MemoryMirror
    from mirrors.prefixed import PrefixedMirror
    from mirrors.progress import CountingMirror
    from mirrors.s3.mirror import S3Mirror
    from mirrors.sealed.envelope import MirrorKeys
    from mirrors.sealed.mirror import SealedMirror
    from mirrors.urls import open_mirror

_MODULE_OF = {
    "CountingMirror": "progress",
    "DirectoryMirror": "directory",
    "FaultyMirror": "faulty",
    "HttpMirror": "http",
    "LateMirror": "lazy",
    "LazyMirror": "lazy",
    "MemoryMirror": "memory",
    "MirrorKeys": "sealed.envelope",
    "PrefixedMirror": "prefixed",
    "S3Mirror": "s3.mirror",
    "SealedMirror": "sealed.mirror",
    "open_mirror": "urls",
}

__all__ = [
    "CountingMirror",
    "DirectoryMirror",
    "FaultyMirror",
    "HttpMirror",
    "LateMirror",
    "LazyMirror",
    "MemoryMirror",
    "MirrorKeys",
    "PrefixedMirror",
    "S3Mirror",
    "SealedMirror",
    "open_mirror",
]


if not TYPE_CHECKING:  # with a module ``__getattr__``, type checkers would accept every misspelt name

    def __getattr__(name):
        """Load a public name from its module (PEP 562), once."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'mirrors' has no attribute {name!r}")
        value = getattr(import_module(f"mirrors.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
