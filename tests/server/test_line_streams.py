"""Lines in and out at descriptors, beside a waker."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memfiles.errors import InvalidArgument
from memfiles.server import stdio
from memfiles.server.stdio import LineReader, LineWriter, Waker, standard_streams


@pytest.fixture
def waker() -> Iterator[Waker]:
    waker = Waker()
    yield waker
    waker.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue  # the test closed it


def every(reader: LineReader) -> list[bytes]:
    return list(iter(reader.next, None))


def test_lines_come_as_they_were_sent(waker: Waker, pipe: tuple[int, int]) -> None:
    """However they arrive; what follows the last line feed is a line as well."""
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(every, LineReader(pipe[0], waker))
        for piece in (b"a\nb", b"b\n\n", b"c" * 100_000, b"\n\xff\r\n", b"end"):
            os.write(pipe[1], piece)
        os.close(pipe[1])

    assert [b"a", b"bb", b"", b"c" * 100_000, b"\xff\r", b"end"] == read.result()


def test_lines_of_a_file(waker: Waker, tmp_path: Path) -> None:
    """Whoever redirects a file into stdin is served as well."""
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    with (tmp_path / "lines").open("rb") as opened:
        assert [b"a", b"b"] == every(LineReader(opened.fileno(), waker))


def test_of_a_line_that_is_too_long_the_ends_come(
    waker: Waker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Little more than the bound is held in memory, the two are no text together, and the next line is whole."""
    monkeypatch.setattr(stdio, "MESSAGE_MAX", 1000)
    (tmp_path / "lines").write_bytes(b"x" * 1_000_000 + b"y" * 512 + b"\nnext\n")
    with (tmp_path / "lines").open("rb") as opened:
        assert [b"x" * 1000 + b"\0" + b"y" * 512, b"next"] == every(LineReader(opened.fileno(), waker))


def test_who_waits_for_a_line_can_be_woken(waker: Waker, pipe: tuple[int, int]) -> None:
    """It is as if there were no more, from then on."""
    reader = LineReader(pipe[0], waker)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.next)
        waker.ring()
        assert waiting.result(20) is None
    os.write(pipe[1], b"late\n")

    assert reader.next() is None


def test_a_waker_may_be_rung_any_number_of_times(waker: Waker, pipe: tuple[int, int]) -> None:
    """It never blocks who rings."""
    for _ in range(100_000):
        waker.ring()

    assert not waker.wait_for(pipe[0], select.POLLIN)


def test_a_line_goes_out_whole(waker: Waker, pipe: tuple[int, int]) -> None:
    """Also one that is larger than what a pipe holds."""
    line = b"x" * 1_000_000
    with ThreadPoolExecutor(1) as pool, os.fdopen(os.dup(pipe[0]), "rb") as reader:
        writing = pool.submit(LineWriter(pipe[1], waker).write, line)
        read = reader.readline()

    assert (line + b"\n", True) == (read, writing.result())


def test_nobody_reads(waker: Waker, pipe: tuple[int, int]) -> None:
    """It is told, and nothing is raised."""
    os.close(pipe[0])

    assert not LineWriter(pipe[1], waker).write(b"line")


def test_who_does_not_read_holds_nobody_up_for_ever(waker: Waker, pipe: tuple[int, int]) -> None:
    """Who writes can be woken as well."""
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(LineWriter(pipe[1], waker).write, b"x" * 1_000_000)
        os.read(pipe[0], 1)  # it has begun
        waker.ring()

        assert writing.result(20) is False


def test_without_stdin_there_is_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who starts the server with stdin closed is told."""
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InvalidArgument, match="closed"), standard_streams():
        pass
