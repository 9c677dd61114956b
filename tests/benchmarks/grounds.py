"""The grounds to measure on: an image of ext4 with a journal on a loop mount, as users have it, and the root.

An image needs root. Where it cannot be mounted, ``grounds`` says why, and the root alone is measured.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.durability.disks import Disk, Kind, disk

_SECTOR = 512  # bytes, in what the kernel counts
VOLUME = 3_000
"""Writes a second, as many as a volume in a cloud often carries out."""

_LIMIT = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device")  # of all processes and of the kernel's threads
_SECTORS_WRITTEN, _FLUSHES = 6, 15  # columns of /sys/block/*/stat


@dataclass(frozen=True)
class Ground:
    """A folder to measure in, and what it is on; ``disk`` if that is an image of its own."""

    name: str
    folder: Path
    file_system: str
    disk: Disk | None = None

    def settled(self) -> tuple[int, int]:
        """Bytes written to the device and flushes it was asked for so far, after all the later write-back.

        To mount it read-only empties the journal of the file system, which is written twice, here and in place.
        """
        assert self.disk is not None
        self.disk.flush()
        self.disk.remount("ro")
        self.disk.remount("rw")
        counted = list(map(int, Path(f"/sys/block/{self.disk.device()}/stat").read_text().split()))
        return counted[_SECTORS_WRITTEN] * _SECTOR, counted[_FLUSHES]

    @contextmanager
    def limited(self, writes: int) -> Iterator[None]:
        """The device carries out at most so many writes a second. ``OSError`` where the kernel cannot limit it."""
        assert self.disk is not None
        number = Path(f"/sys/block/{self.disk.device()}/dev").read_text().strip()
        _LIMIT.write_text(f"{number} {writes}")
        try:
            yield
        finally:
            _LIMIT.write_text(f"{number} 0")


@contextmanager
def grounds(folder: Path, *, megabytes: int = 512) -> Iterator[tuple[list[Ground], str]]:
    """An image of that size, if it can be mounted, and the root; and why there is no image, or nothing."""
    found, lacking = [Ground("root", folder, file_system(folder))], ""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="image-", dir=folder)))
        try:
            made = stack.enter_context(disk(_journaled(megabytes), place))
            found.insert(0, Ground("ext4 with a journal", made.path, file_system(made.path), made))
        except (OSError, subprocess.SubprocessError) as error:
            lacking = f"Not measured on ext4 with a journal: an image could not be mounted here ({error})."
        yield found, lacking


def _journaled(megabytes: int) -> Kind:
    """As ``mkfs.ext4`` makes it, but at once: lazy initialisation would write in the background for minutes."""
    at_once = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
    make = ("mkfs.ext4", "-q", "-F", "-m", "0", "-i", "8192", "-E", at_once)
    return Kind(make, "data=ordered", megabytes, sparse=False)


def file_system(path: Path) -> str:
    """The kind of file system that a path is on, its device, and whether it has a journal (as far as ext4 tells)."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    device, _, kind, *_ = max(
        (mount for mount in mounts if path.resolve().is_relative_to(mount[1])), key=lambda mount: len(mount[1])
    )
    name = Path(device).name
    if kind != "ext4":
        return f"{kind} on {name}"
    with_journal = any(each.name.startswith(f"{name}-") for each in _entries("/proc/fs/jbd2"))
    return f"ext4 {'with' if with_journal else 'without'} a journal on {name}"


def _entries(folder: str) -> list[os.DirEntry[str]]:
    return list(os.scandir(folder)) if Path(folder).is_dir() else []
