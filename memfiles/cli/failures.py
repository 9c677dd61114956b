"""Error reports and exit codes of the command line.

    0  ok                 4  conflict: changed in the meantime, or already exists
    1  error              5  over a cap or budget
    2  usage              6  denied: read-only, level, credential
    3  not found          7  mirror unavailable
    130  interrupted, or not confirmed

The rule this file guards: whatever happens, a person gets one line on stderr that says what to do, and a program that
asked for JSON gets ``{"error": {"code", "message", "transient"}}`` there.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from memfiles.cli.options import Settings, color_of_environment
from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.records.graphemes import harmless

if TYPE_CHECKING:
    import socket

INTERRUPTED = 130
ERROR, USAGE = 1, 2


class Failure(Struct, frozen=True):
    """One error as it is reported."""

    code: str
    message: str
    exit_code: int = 1
    transient: bool = False
    hint: str | None = None
    data: dict[str, Any] | None = None


class NotFound(MemfilesError, code="not_found", exit_code=3):
    """A file or agent that a command needs does not exist."""


class AlreadyThere(MemfilesError, code="already_there", exit_code=4):
    """A command would have to overwrite something that it did not create."""


class NoMirror(MemfilesError, code="no_mirror", exit_code=USAGE):
    """A mirror command, in a workflow that declares no mirror."""


class ToolFailed(MemfilesError):
    """A tool call whose result is an error; its code, exit code and data are the tool's."""

    def __init__(self, message: str, *, code: str | None, data: dict[str, Any] | None) -> None:
        super().__init__(message)
        kind = next((kind for kind in _kinds_of(MemfilesError) if kind.code == code), None)
        exit_code, transient = (kind.exit_code, kind.transient) if kind else (USAGE, False)  # else the call was wrong
        exit_code = ERROR if code == "internal" else exit_code
        self.failure = Failure(code or self.code, message, exit_code, transient, data=data)


def _kinds_of(kind: type[MemfilesError]) -> Iterator[type[MemfilesError]]:
    """The kinds of error below one, at any depth."""
    for each in kind.__subclasses__():
        yield each
        yield from _kinds_of(each)


def failure_of(error: BaseException) -> Failure:
    """The report of ``error``."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            return Failure("usage", "no command given", USAGE, hint=error.ctx.get_help() if error.ctx else None)
        case ToolFailed():
            return error.failure
        case MemfilesError():
            return Failure(error.code, str(error), error.exit_code, transient=error.transient)
        case click.UsageError():
            command, message = error.ctx.command_path if error.ctx else "", error.format_message()
            message = message.replace("'--debug': ", "'MEMFILES_DEBUG': ")  # the option takes no value of its own
            message = message.replace("a valid integer range", "a whole number").replace(
                "a valid float range", "a number"
            )
            hint = f"Try '{command} --help'." if command else None
            if (extra := message.partition("unexpected extra argument (")[2][:-1]).endswith((".yaml", ".yml", ".json")):
                hint = f"If it is the workflow, give it with -w: {command} -w {extra}"
            return Failure("usage", message, USAGE, hint=hint)
        case click.ClickException():
            return Failure("error", error.format_message(), error.exit_code)
        case click.Abort():
            return Failure("interrupted", str(error) or "interrupted", INTERRUPTED)
        case MemoryError():
            return Failure("out_of_memory", "there is not enough memory for this; see ulimit -v", transient=True)
        case RuntimeError() if "start new thread" in str(error):
            return Failure("no_threads", "no thread can be started; see ulimit -u, or pids.max of the container")
        case BaseExceptionGroup(exceptions=(first, *_)):  # of the tasks of a server
            return failure_of(first)
        case OSError(filename=name, strerror=reason) if reason:
            return Failure("os_error", f"{name}: {reason}" if name is not None else reason)
    # the kind of error only: its text may quote stored content
    return Failure(
        "unexpected",
        f"unexpected {type(error).__name__}; this is a bug in memfiles. Run the command again with --debug and report "
        f"the output",
    )


def report(error: BaseException, *, settings: Settings) -> int:
    """Print the error on stderr and return the exit code."""
    failure = failure_of(error)
    color = color_of_environment() if settings.color is None else settings.color  # the command's context is gone
    if settings.debug and not isinstance(error, click.ClickException | click.Abort):
        import traceback  # late: it brings Python's tokenizer

        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if settings.json:
        shown: dict[str, Any] = {"code": failure.code, "message": failure.message, "transient": failure.transient}
        shown |= {"data": failure.data} if failure.data else {}
        click.echo(json.dumps({"error": shown}, ensure_ascii=False), err=True)
        return failure.exit_code
    click.echo(click.style("error: ", fg="red", bold=True) + harmless(failure.message), err=True, color=color)
    if failure.hint:
        click.echo(harmless(failure.hint), err=True)
    return failure.exit_code


def listening_on(port: int) -> socket.socket:
    """A socket that listens on loopback at ``--port``, 0 for any free one; ``InvalidArgument`` if it is taken."""
    import socket  # late: 10 ms that only servers need

    try:
        return socket.create_server(("127.0.0.1", port))  # clients wait from now on instead of being refused
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise InvalidArgument(f"port {port} cannot be used ({why}): choose another with --port") from error


def end_on_signals() -> None:
    """Have SIGTERM raise a ``KeyboardInterrupt``, so that the memory is closed, and SIGHUP unless it is ignored."""

    def hung_up(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a terminal that is closed sends several
        signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, hung_up)
