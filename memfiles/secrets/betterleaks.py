"""A second scanner for credentials: betterleaks, for workflows that ask for it.

The rules this file guards: it adds to the gate's own rules and takes nothing away; and it never lets a text through
in silence: when it fails, is not to be used after a fork or runs out of time, the writer is told, and the log once.

It is asked for and not used wherever it happens to be installed, so that a workflow's gate is the same on every
machine, and because it is a program in Go: 25 MiB, 0.1 s to start, and dead in the child of a fork.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from memfiles.errors import InvalidArgument
from memfiles.secrets.gate import Leak, Scan
from memfiles.storage.fork_safety import renew_in_child

if TYPE_CHECKING:
    from betterleaks import Finding

NAME = "betterleaks"
LIMIT_SECONDS = 2.0
"""How long one text may take. A text of prose of 8 MiB takes 0.03 s, one made to trap it six."""

_PART = 64 * 1024  # characters; at most 0.04 s each, after which the clock is looked at
_OVERLAP = 4 * 1024  # a credential that two parts divide is whole in one of them
_UNSURE = "low"  # rules that take "password: required" for a password: of 92 look-alikes they hit 12
_CHECKSUMMED = frozenset({"github-pat", "npm-access-token"})  # the gate's own rules tell a wrong checksum, these do not
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")

_log = logging.getLogger("memfiles")
_used_in: int | None = None  # the process that started the library, of which there is one however many scanners


class LeakScanner:
    """betterleaks as a ``Scanner``. Threads may share it; it is loaded at the first text."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises ``InvalidArgument`` if betterleaks is not installed."""
        try:
            import betterleaks
        except ImportError as error:
            raise InvalidArgument(
                "secrets_scanner is betterleaks, which is not installed here: pip install 'memfiles[secrets]'"
            ) from error
        self._library = betterleaks
        self._monotonic = monotonic
        self._told = False
        renew_in_child(self, LeakScanner._forked)

    def __call__(self, text: str) -> Scan:
        """What betterleaks is sure of in ``text``; ``trouble`` says why something may have been missed."""
        global _used_in
        if _used_in not in (None, os.getpid()):
            return self._troubled((), "it cannot be used in a process forked from one that used it")
        _used_in = os.getpid()
        leaks: list[Leak] = []
        try:
            for leak in self._leaks(_readable(text)):
                leaks.append(leak)
        except TimeoutError:
            return self._troubled(leaks, f"it did not finish in {LIMIT_SECONDS:g} seconds")
        except (self._library.BetterleaksError, OSError, ValueError) as error:
            return self._troubled(leaks, f"it failed with {type(error).__name__}")  # its message may hold the text
        return Scan(tuple(leaks))

    def _leaks(self, text: str) -> Iterator[Leak]:
        deadline = self._monotonic() + LIMIT_SECONDS
        for start in range(0, max(1, len(text) - _OVERLAP), _PART - _OVERLAP):
            if self._monotonic() > deadline:
                raise TimeoutError
            part = text[start : start + _PART]
            for first, last, rule in set(_places(part, self._library.scan_string(part))):
                yield Leak(start + first, start + last, rule)

    def _troubled(self, leaks: Any, why: str) -> Scan:
        trouble = f"{NAME} did not check this text: {why}; memfiles' own rules did"
        if not self._told:
            self._told = True
            _log.warning("%s", trouble)
        return Scan(tuple(leaks), trouble)

    def _forked(self) -> None:
        """A child has a warning of its own to give."""
        self._told = False


def scanner_called(name: str | None) -> LeakScanner | None:
    """The scanner that a workflow names, None if it names none. ``InvalidArgument`` if it is not installed."""
    return LeakScanner() if name is not None else None


def _readable(text: str) -> str:
    """``text`` as C and UTF-8 can hold it, every character at its place: a NUL would end it for the library."""
    return text.replace("\0", "\x01").encode("utf-8", "replace").decode()


def _places(part: str, findings: list[Finding]) -> Iterator[tuple[int, int, str]]:
    """Where the values that were found stand; what was found in a decoded form is taken to be its whole lines."""
    for finding in findings:
        if finding.confidence == _UNSURE or finding.rule_id in _CHECKSUMMED:
            continue
        rule = f"{NAME}-{_NO_NAME.sub('-', finding.rule_id)[:80]}"
        starts = list(_starts(part, finding.secret)) if finding.secret else []
        for start in starts:
            yield start, start + len(finding.secret), rule
        if not starts:
            yield *_lines(part, finding.location.start_line, finding.location.end_line), rule


def _starts(part: str, value: str) -> Iterator[int]:
    start = part.find(value)
    while start >= 0:
        yield start
        start = part.find(value, start + len(value))


def _lines(part: str, first: int, last: int) -> tuple[int, int]:
    """From and up to which character these lines go, counted from 1; the whole part if there are none such."""
    ends = [found.end() for found in re.finditer(r"\n|\Z", part)]
    if not 1 <= first <= last <= len(ends):
        return 0, len(part)
    return (ends[first - 2] if first > 1 else 0), ends[last - 1]
