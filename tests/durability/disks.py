"""File systems in image files, on loop mounts, whose power can be cut. Needs root."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN, _IOR('X', 125, __u32)
_WITHOUT_FLUSHING_THE_LOG = 2
_SECONDS = 30


@dataclass(frozen=True)
class Kind:
    """A kind of file system: what makes it, how it is mounted, and the smallest image it takes."""

    make: tuple[str, ...]
    options: str
    megabytes: int
    sparse: bool = True  # else every block of the image has its place, as on a disk


KINDS = {
    "ext4": Kind(("mkfs.ext4", "-q", "-F", "-m", "0"), "data=ordered", 48),
    "ext4-writeback": Kind(("mkfs.ext4", "-q", "-F", "-m", "0"), "data=writeback,noauto_da_alloc", 48),
    "ext4-watchful": Kind(("mkfs.ext4", "-q", "-F", "-m", "0"), "errors=remount-ro", 16),
    "ext4-small-blocks": Kind(("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "1024"), "data=ordered", 24),
    "ext4-large-blocks": Kind(("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096"), "data=ordered", 32),
    "xfs": Kind(("mkfs.xfs", "-q", "-f"), "defaults", 300),
}


class Disk:
    """One mounted image."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        """``folder`` gets the image and the mount point."""
        self.path = folder / "disk"
        self._image = folder / "image"
        self._kind = kind

    @property
    def reuses_blocks(self) -> bool:
        """Whether the blocks of a file that is gone may be overwritten before it is gone on the disk as well."""
        return "data=writeback" in self._kind.options

    def make(self) -> None:
        """Make the file system, empty, and mount it."""
        self.path.mkdir(parents=True)
        with self._image.open("wb") as image:
            if self._kind.sparse:
                image.truncate(self._kind.megabytes << 20)
            else:
                image.writelines(bytes(1 << 20) for _ in range(self._kind.megabytes))
        _run(*self._kind.make, str(self._image))
        self.mount()

    def mount(self) -> None:
        """Mount it; after a power cut this replays the file system's own log."""
        _run("mount", "-o", f"loop,{self._kind.options}", str(self._image), str(self.path))

    def unmount(self) -> None:
        """Unmount it, and with it forget all that was not on the disk."""
        _run("umount", str(self.path))

    def remount(self, options: str) -> None:
        """Change the mount's options, ``ro`` for example."""
        _run("mount", "-o", f"remount,{options}", str(self.path))

    def flush(self) -> None:
        """Have on the disk all that was written so far."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            ctypes.CDLL(None).syncfs(descriptor)
        finally:
            os.close(descriptor)

    def cut_power(self) -> None:
        """From now on nothing reaches the disk any more, and every call fails."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            if os.fstat(descriptor).st_dev == self.path.parent.stat().st_dev:
                raise NotADirectoryError(f"{self.path} is not mounted: this would be the power of the whole machine")
            fcntl.ioctl(descriptor, _SHUT_DOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_LOG))
        finally:
            os.close(descriptor)

    def power_up(self) -> None:
        """After ``cut_power``, mount what is on the disk."""
        self.unmount()
        self.mount()

    def fill(self, *, leaving: int = 0) -> Path:
        """A file that takes all the room there is but so many bytes."""
        filler = self.path / "filler"
        with filler.open("wb", buffering=0) as file:
            for step in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(bytes(step)) == step:
                        pass
            os.fsync(file.fileno())
            file.truncate(max(0, file.tell() - leaving))
        return filler

    def break_down(self) -> None:
        """Have the file system find an error and turn itself read-only, open files or not."""
        Path(f"/sys/fs/ext4/{self.device()}/trigger_fs_error").write_text("broken on purpose")

    def device(self) -> str:
        """The name of the loop device, ``loop0`` for example."""
        for line in Path("/proc/mounts").read_text("utf-8").splitlines():
            device, path = line.split()[:2]
            if path == str(self.path):
                return Path(device).name
        raise FileNotFoundError(f"{self.path} is not mounted")


@contextmanager
def disk(kind: str | Kind, folder: Path) -> Iterator[Disk]:
    """A mounted file system of this kind, gone without a trace afterwards."""
    made = Disk(KINDS[kind] if isinstance(kind, str) else kind, folder)
    try:
        made.make()
        yield made
    finally:
        with suppress(subprocess.SubprocessError):
            subprocess.run([_tool("umount"), "--lazy", str(made.path)], capture_output=True, timeout=_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def _tool(name: str) -> str:
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    return shutil.which(name, path=search) or name


def _run(name: str, *arguments: str) -> None:
    subprocess.run([_tool(name), *arguments], check=True, capture_output=True, timeout=_SECONDS)
