"""The files of entries, listed: their folders, their paths, and what tells a version from every other."""

from __future__ import annotations

import os

from memfiles import atomic
from memfiles.atomic import Signature
from memfiles.keys import ENTRIES, entry_place

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def folders(directory: int) -> dict[str, Signature]:
    """The folders that entries may lie in, with a signature that is another after every rename in one of them."""
    found = {}
    for name in _listed(directory, ENTRIES):
        folder = f"{ENTRIES}/{name}"
        if entry_place(f"{folder}/{'0' * 40}.json") is not None:
            seen = atomic.signature(directory, folder)
            if seen is not None:
                found[folder] = seen
    return found


def paths(directory: int, folder: str) -> list[str]:
    """Where entries lie in a folder, sorted."""
    named = (f"{folder}/{name}" for name in _listed(directory, folder))
    return [path for path in named if entry_place(path) is not None]


def signatures(directory: int, folder: str) -> dict[str, Signature]:
    """The signatures of the entries in a folder; 100,000 take a third of a second."""
    try:
        descriptor = os.open(folder, _FOLDER, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found = {}
    try:
        for name in os.listdir(descriptor):
            path = f"{folder}/{name}"
            if entry_place(path) is not None:
                seen = atomic.signature(descriptor, name)
                if seen is not None:
                    found[path] = seen
    finally:
        os.close(descriptor)
    return found


def _listed(directory: int, folder: str) -> list[str]:
    try:
        return sorted(atomic.names(directory, folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
