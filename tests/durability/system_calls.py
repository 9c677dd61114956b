"""The system calls that can change a file system, by the number the processor knows them by."""

from __future__ import annotations

import platform
import struct
from typing import NamedTuple

_X86_64 = {
    **{0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 8: "lseek", 17: "pread64", 18: "pwrite64"},
    **{20: "writev", 32: "dup", 33: "dup2", 40: "sendfile", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync"},
    **{76: "truncate", 77: "ftruncate", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "creat", 86: "link", 87: "unlink"},
    **{88: "symlink", 90: "chmod", 91: "fchmod", 162: "sync", 217: "getdents64", 231: "exit_group", 257: "openat"},
    **{258: "mkdirat", 262: "newfstatat", 263: "unlinkat", 264: "renameat", 265: "linkat", 266: "symlinkat"},
    **{268: "fchmodat", 277: "sync_file_range", 280: "utimensat", 285: "fallocate", 292: "dup3", 296: "pwritev"},
    **{306: "syncfs", 316: "renameat2", 326: "copy_file_range", 328: "pwritev2", 332: "statx", 437: "openat2"},
}
_AARCH64 = {
    **{23: "dup", 24: "dup3", 25: "fcntl", 32: "flock", 33: "mknodat", 34: "mkdirat", 35: "unlinkat", 36: "symlinkat"},
    **{37: "linkat", 38: "renameat", 45: "truncate", 46: "ftruncate", 47: "fallocate", 52: "fchmod", 53: "fchmodat"},
    **{56: "openat", 57: "close", 61: "getdents64", 62: "lseek", 63: "read", 64: "write", 66: "writev", 67: "pread64"},
    **{68: "pwrite64", 70: "pwritev", 71: "sendfile", 79: "newfstatat", 80: "fstat", 81: "sync", 82: "fsync"},
    **{83: "fdatasync", 84: "sync_file_range", 88: "utimensat", 94: "exit_group", 267: "syncfs", 276: "renameat2"},
    **{285: "copy_file_range", 287: "pwritev2", 291: "statx", 437: "openat2"},
}


class Processor(NamedTuple):
    """How a processor's registers carry a system call: names by number, and where its result goes."""

    names: dict[int, str]
    registers: struct.Struct
    result: int
    number: int | None  # among the registers; None: in a register set of its own


PROCESSORS = {
    "x86_64": Processor(_X86_64, struct.Struct("27Q"), result=10, number=15),
    "aarch64": Processor(_AARCH64, struct.Struct("34Q"), result=0, number=None),
}
PROCESSOR = PROCESSORS.get(platform.machine())


def name_of(number: int) -> str:
    """The name of a system call; ``#number`` for those that do not matter to files."""
    return (PROCESSOR.names if PROCESSOR else {}).get(number, f"#{number}")
