"""Implementations of ``memfiles.mirror.Mirror``, one module each."""

from __future__ import annotations

from mirrors.memory import MemoryMirror

__all__ = ["MemoryMirror"]
