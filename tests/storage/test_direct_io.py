"""Blocks: what was written is there, whether the file system takes direct writes, refuses them, or changes its mind."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from memfiles.storage.journal_frames import BLOCK_BYTES, BlockWriter

MANY = 300  # blocks: more than are written at once


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    yield descriptor
    os.close(descriptor)


def is_direct(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def content(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    try:
        return os.pread(reader, size, 0)
    finally:
        os.close(reader)


@pytest.mark.parametrize("directly", [True, False])
def test_parts_of_any_length_are_written_one_after_the_other(file: int, directly: bool) -> None:
    """Also more than fit into the buffer, and over what was there."""
    parts = [b"a", b"", b"b" * (MANY * BLOCK_BYTES), b"c" * (BLOCK_BYTES - 1)]
    blocks = BlockWriter(file, directly=directly)
    blocks.write([b"x" * (4 * BLOCK_BYTES)], offset=0)
    blocks.write(parts, offset=BLOCK_BYTES)

    assert b"x" * BLOCK_BYTES + b"".join(parts) == content(file)


def test_a_file_that_is_not_to_be_written_directly_is_left_as_it_is(file: int) -> None:
    """Without flushes the page cache is all that is wanted."""
    BlockWriter(file, directly=False)

    assert not is_direct(file)


def test_a_file_system_that_refuses_a_direct_write_is_written_through_the_cache(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some take the flag and refuse the write; they are asked once."""
    refused = []

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        if is_direct(descriptor):
            refused.append(offset)
            raise OSError(errno.EINVAL, "refused")
        return real(descriptor, data, offset)

    real = os.pwrite
    blocks = BlockWriter(file, directly=True)
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_DIRECT)
    monkeypatch.setattr(os, "pwrite", pwrite)
    blocks.write([b"a" * BLOCK_BYTES], offset=0)
    blocks.write([b"b" * BLOCK_BYTES], offset=BLOCK_BYTES)

    assert b"a" * BLOCK_BYTES + b"b" * BLOCK_BYTES == content(file)
    assert [0] == refused


def test_another_failure_is_the_caller_s(file: int) -> None:
    """Nothing is tried again that is not a matter of how it is written."""
    read_only = os.open(f"/proc/self/fd/{file}", os.O_RDONLY)
    with pytest.raises(OSError, match="Bad file descriptor"):
        BlockWriter(read_only, directly=True).write([bytes(BLOCK_BYTES)], offset=0)
    os.close(read_only)


def test_what_a_short_write_left_is_written_next(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take less than it was given."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: real(descriptor, data[:BLOCK_BYTES], offset))
    data = bytes(range(256)) * (3 * BLOCK_BYTES // 256)
    BlockWriter(file, directly=True).write([data], offset=0)

    assert data == content(file)
