"""A forked child that is stopped before every system call: to be killed there, refused it, or recorded.

``strace`` can do the same, at the price of a new interpreter a run and of counters that start before the
operation does. A child forked from a process that has imported everything is stopped at its first call 10 ms
later, so that a sweep need not be a sample.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.durability.system_calls import PROCESSOR, name_of

_TRACE_ME, _NEXT_CALL, _SET_OPTIONS, _GET_REGISTERS, _SET_REGISTERS, _CALL_INFO = 0, 24, 0x4200, 0x4204, 0x4205, 0x420E
_DETACH, _FROM_HERE, _MANY_DESCRIPTORS = 17, -100, 1 << 16
_GOOD_STOPS, _EXIT_KILL = 0x1, 0x100000
_GENERAL_REGISTERS, _CALL_NUMBER = 1, 0x404
_CALL_STOP = signal.SIGTRAP | 0x80
_ENTRY, _EXIT = 1, 2
_INFO = struct.Struct("<B3xIQQQ6Q8x")
_EXIT_INFO = struct.Struct("<B3xIQQqB")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


@dataclass(frozen=True)
class Call:
    """A system call that is about to happen."""

    name: str
    arguments: tuple[int, ...]


class _Vector(ctypes.Structure):
    """Where the kernel puts registers, and how many bytes of them there are."""

    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Traced:
    """One forked child, stopped before its first system call after ``setup``. A context manager that ends it."""

    def __init__(self, setup: Callable[[], Callable[[], None]]) -> None:
        """The child calls ``setup`` undisturbed, and what that returns under the eyes of the tracer."""
        self._ended = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: the child uses none of them
            self.pid = os.fork()
        if self.pid == 0:
            _be_traced(setup)
        self._wait()
        _ptrace(_SET_OPTIONS, self.pid, data=_GOOD_STOPS | _EXIT_KILL)

    def __enter__(self) -> Traced:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def calls(self) -> Iterator[Call]:
        """Every system call of the child's main thread, before it happens; ends when the child does."""
        while (stop := self._next_stop()) is not None:
            if stop[0] == _ENTRY:
                number, *arguments = _INFO.unpack_from(stop)[4:]
                yield Call(name_of(number), tuple(arguments))

    def complete(self) -> int:
        """Let the call happen at which the child stands; its result (-errno when it failed)."""
        stop = self._next_stop()
        if stop is None or stop[0] != _EXIT:
            raise ChildProcessError(f"{self.pid} ended in the middle of a system call")
        return int(_EXIT_INFO.unpack_from(stop)[4])

    def refuse(self, error: int) -> None:
        """Have the call at which the child stands fail with ``error`` and do nothing; 0: as if it had done its work."""
        assert PROCESSOR is not None
        no_call = struct.pack("<i", -1)
        if PROCESSOR.number is None:
            self._set(_CALL_NUMBER, no_call)
        else:
            self._set_register(PROCESSOR.number, (1 << 64) - 1)
        self.complete()
        self._set_register(PROCESSOR.result, -error % (1 << 64))

    def release(self) -> None:
        """Let the child run on undisturbed and wait for its end."""
        if not self._ended:
            _ptrace(_DETACH, self.pid)
            while not self._ended:
                self._wait()

    def place(self, call: Call) -> str:
        """The path a call is about: that of its descriptor, or of the folder its path starts from; "" for others."""
        if call.name.startswith("#"):
            return ""
        descriptor = ctypes.c_int(call.arguments[0] & 0xFFFFFFFF).value
        try:
            if 0 <= descriptor < _MANY_DESCRIPTORS:
                return os.readlink(f"/proc/{self.pid}/fd/{descriptor}")
            return self.text(call.arguments[1] if descriptor == _FROM_HERE else call.arguments[0])
        except OSError:
            return ""

    def memory(self, address: int, length: int) -> bytes:
        """Bytes of the child's memory."""
        descriptor = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY)
        try:
            return os.pread(descriptor, length, address)
        finally:
            os.close(descriptor)

    def text(self, address: int) -> str:
        """The zero-terminated string at an address."""
        found = b""
        while b"\0" not in found:
            found += self.memory(address + len(found), 256 - (address + len(found)) % 256)
        return os.fsdecode(found.partition(b"\0")[0])

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if not self._ended:
            os.kill(self.pid, signal.SIGKILL)
            while not self._ended:
                self._wait()

    def _next_stop(self) -> bytes | None:
        """The next time the child enters or leaves a system call; None once it has ended."""
        passed_on = 0
        while True:
            _ptrace(_NEXT_CALL, self.pid, data=passed_on)
            stopped_by = self._wait()
            if stopped_by is None:
                return None
            if stopped_by == _CALL_STOP:
                return self._call_info()
            passed_on = stopped_by if stopped_by != signal.SIGTRAP else 0

    def _wait(self) -> int | None:
        _, status = os.waitpid(self.pid, 0)
        self._ended = not os.WIFSTOPPED(status)
        return None if self._ended else os.WSTOPSIG(status)

    def _call_info(self) -> bytes:
        found = ctypes.create_string_buffer(_INFO.size)
        _ptrace(_CALL_INFO, self.pid, address=_INFO.size, data=ctypes.addressof(found))
        return found.raw

    def _set_register(self, index: int, value: int) -> None:
        assert PROCESSOR is not None
        found = ctypes.create_string_buffer(PROCESSOR.registers.size)
        vector = _Vector(ctypes.addressof(found), len(found))
        _ptrace(_GET_REGISTERS, self.pid, address=_GENERAL_REGISTERS, data=ctypes.addressof(vector))
        registers = list(PROCESSOR.registers.unpack(found.raw))
        registers[index] = value
        self._set(_GENERAL_REGISTERS, PROCESSOR.registers.pack(*registers))

    def _set(self, kind: int, value: bytes) -> None:
        given = ctypes.create_string_buffer(value, len(value))
        vector = _Vector(ctypes.addressof(given), len(given))
        _ptrace(_SET_REGISTERS, self.pid, address=kind, data=ctypes.addressof(vector))


def can_trace() -> bool:
    """Whether this machine lets a process trace its child, and its registers are known here."""
    if PROCESSOR is None:
        return False
    try:
        with Traced(_nothing) as child:
            return any(call.name == "exit_group" for call in child.calls())
    except OSError:
        return False


def _nothing() -> Callable[[], None]:
    return lambda: None


def _be_traced(setup: Callable[[], Callable[[], None]]) -> None:
    """What the child does; never returns."""
    try:
        run = setup()
        _ptrace(_TRACE_ME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        run()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _ptrace(request: int, pid: int, *, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, pid, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
