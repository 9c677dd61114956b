"""The command line: ``memfiles --help`` lists it, ``main`` runs it.

``program`` is the root command and its table, ``options`` the options of every command, ``opening`` opens the memory
for one, ``output`` prints, ``failures`` reports errors and maps them to exit codes. The other files are families of
commands, loaded only when one of them runs.

This file guards the standard streams: the next opened file must not take the number of a closed one, or output would be
printed into a record; output to stdout arrives whole, or the exit code is not 0; and a closed stderr changes nothing.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import re
import sys
import threading
import typing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import main_thread
from types import ModuleType
from typing import Any

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_LATE = ("inspect", "ipaddress", "traceback", "msgspec.inspect", "msgspec.msgpack", "msgspec.toml", "msgspec.yaml")
_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")
_HIDDEN = ("typing_extensions", "_hashlib")
_compile = re.compile


def run() -> None:
    """Run the command line, and then end the process at once: taking all modules down took 8 of 60 ms.

    Not while another thread still works, which Python waits for. What other packages want done at the exit is done.
    """
    try:
        main()
    except SystemExit as end:
        code = end.code if end.code is not None else 0
        if not isinstance(code, int) or any(not it.daemon for it in threading.enumerate() if it is not main_thread()):
            raise
        atexit._run_exitfuncs()
        flush_stdout()
        os._exit(code & 0xFF)


def main() -> None:
    """Run the command line of this process and end it with the exit code."""
    try:
        secure_streams()
        gc.disable()  # the imports' objects live to the end: walking them again and again took 7 ms of 48
        with lean_imports():
            from memfiles.cli.program import program

        program()
    finally:
        flush_stdout()


@contextmanager
def lean_imports() -> Iterator[None]:
    """Import packages without what they prepare and a command seldom uses: a third of the work of ``memfiles read``.

    Regular expressions are compiled at their first use, most of them PyYAML's, whose C parser needs none; ``inspect``,
    which brings the parser of Python, and some others are loaded at their first use; msgspec gets by with ``typing``,
    ``hashlib`` without OpenSSL, and click without two kinds of types for which Python loads its compiler.
    This is for one thread at a time. Import no module here that needs real expressions, such as boto3 and frameworks.
    """
    for name in _LATE:
        sys.modules.setdefault(name, _LateModule(name))
    hidden = {name: None for name in _HIDDEN if name not in sys.modules}
    compiled, typed, referred = re.compile, typing.TypedDict, typing.ForwardRef
    sys.modules.update(hidden)  # type: ignore[arg-type]  # importing it fails as if it were not installed
    re.compile, typing.TypedDict = _LateExpression, _PlainDict  # type: ignore[assignment]
    if sys.version_info < (3, 14):  # which compiles none at once
        typing.ForwardRef = _LateReference  # type: ignore[misc]
    try:
        yield
    finally:
        re.compile, typing.TypedDict, typing.ForwardRef = compiled, typed, referred  # type: ignore[misc]
        for name in hidden:
            del sys.modules[name]


def load(*modules: str) -> None:
    """Import these leanly."""
    with lean_imports():
        for module in modules:
            import_module(module)


class _PlainDict(dict[str, Any]):
    """Stand-in for ``TypedDict``, whose declared keys only a type checker needs."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Take ``total``."""


class _LateReference(typing.ForwardRef, _root=True):  # type: ignore[call-arg, misc]
    """A type that is named in a text, which is compiled when somebody asks for the type."""

    def __init__(self, arg: str, is_argument: bool = True, module: Any = None, *, is_class: bool = False) -> None:
        self.__forward_arg__, self.__forward_module__ = arg, module
        self.__forward_is_argument__, self.__forward_is_class__ = is_argument, is_class
        self.__forward_evaluated__, self.__forward_value__ = False, None

    @property
    def __forward_code__(self) -> Any:  # type: ignore[override]
        return compile(self.__forward_arg__, "<string>", "eval")


class _LateModule(ModuleType):
    """A module that is loaded at the first use of one of its names; ``importlib``'s own loads at its import."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class _LateExpression:
    """A regular expression that is compiled when one of its methods or attributes is first used."""

    def __init__(self, pattern: Any, flags: Any = 0) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """An attribute of the compiled expression; kept, so that the next use finds it at once."""

        def call(*args: Any, **given: Any) -> Any:
            return getattr(self._compiled(), name)(*args, **given)

        return call if name in _METHODS else getattr(self._compiled(), name)

    def _compiled(self) -> re.Pattern[Any]:
        compiled = _compile(*self._given)
        vars(self).update((name, getattr(compiled, name)) for name in _METHODS)
        return compiled


def secure_streams() -> None:
    """Open all three. Reading a closed stdin and printing to a closed stdout fail; a closed stderr drops its output.

    Stdout is buffered even with ``PYTHONUNBUFFERED``: an unbuffered one may write a part and drop the rest.
    """
    _open_if_closed(_STDIN, os.O_WRONLY)
    _open_if_closed(_STDOUT, os.O_RDONLY)
    _open_if_closed(_STDERR, os.O_WRONLY)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_StandardFile(_STDIN, closefd=False)))
    buffer = io.BufferedWriter(_StandardFile(_STDOUT, "w", closefd=False))
    sys.stdout = io.TextIOWrapper(buffer, _encoding_of(sys.stdout), line_buffering=os.isatty(_STDOUT))
    lenient: Any = _LenientFile(_STDERR, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(lenient, _encoding_of(sys.stderr), write_through=True)


def flush_stdout() -> None:
    """Flush stdout; ``SystemExit`` with 1 if that fails."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)  # or the interpreter would flush, and complain, again
        raise SystemExit(1) from None


class _StandardFile(io.FileIO):
    """Stdin or stdout; its errors name it, as another disk may be full."""

    def readall(self) -> bytes:
        """All that is left."""
        try:
            return super().readall()
        except OSError as error:
            error.filename = "stdin"
            raise

    def write(self, data: Any, /) -> int:
        """Write as much as possible at once."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "stdout"
            raise


class _LenientFile(io.FileIO):
    """A file that accepts everything, even if it cannot be written."""

    def write(self, data: Any, /) -> int:
        """Write as much as possible; claim all of it."""
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def _encoding_of(stream: Any) -> str | None:
    return stream.encoding if stream is not None else None


def _open_if_closed(number: int, flags: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, flags)  # takes the lowest free number: this one, if the lower ones are open
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
