"""What is wrong with a document, where, and how that is said.

The rule this file guards: no message repeats a value. Keys and identifiers are shown only when they
look like identifiers, because a mis-indented line of somebody's memory may stand where a key belongs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

from memfiles.errors import WorkflowError

Where = tuple[str | int, ...]
"""The way to a value from the root of a document: mapping keys and list positions (from 0)."""

Mark = tuple[int, int]
"""A line and a column, both from 1."""

REPORTED_MAX = 100
_GUESSED_FROM_MAX = 1000
_LISTED_MAX = 10
_SPELLED_MAX = 200
_IDENTIFIER = re.compile(r"[A-Za-z0-9_@$][A-Za-z0-9_@$./:+-]{0,63}", re.ASCII)
_PLAIN_STEP = re.compile(r"[\w@$][\w@$-]{0,63}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what, and what to do about it."""

    where: Where
    what: str
    at_key: bool = False
    """Whether the key itself is the trouble, so that its position is shown and not its value's."""
    written: str = ""
    """What the author wrote where one of ``allowed`` was expected; the nearest of them is suggested."""
    allowed: Collection[str] = field(default=(), repr=False)

    def sentence(self) -> str:
        """What is wrong, with the nearest allowed word when there is one."""
        return self.what + did_you_mean(self.written, self.allowed)


def did_you_mean(written: str, allowed: Collection[str]) -> str:
    """What to add to a message: the allowed word most like ``written``, else all of them if they are few."""
    nearest = nearest_to(written, allowed)
    if nearest:
        return f"; did you mean {nearest!r}?"
    return f"; use one of {', '.join(allowed)}" if 0 < len(allowed) <= _LISTED_MAX else ""


def nearest_to(written: str, allowed: Collection[str]) -> str | None:
    """The allowed word most like ``written``, if one is."""
    if len(written) > 64 or len(allowed) > _GUESSED_FROM_MAX:  # difflib is quadratic
        return None
    by_folded = {_folded(word): word for word in allowed}
    nearest = get_close_matches(_folded(written), by_folded, n=1)
    return by_folded[nearest[0]] if nearest else None


def is_identifier(text: str) -> bool:
    """Whether ``text`` may stand in a message: it looks like a name, so it is hardly content."""
    return _IDENTIFIER.fullmatch(text) is not None


def shown(text: object) -> str:
    """``text`` quoted and with a space before it if it looks like an identifier, else nothing."""
    return f" {text!r}" if isinstance(text, str) and is_identifier(text) else ""


def spelled(where: Where) -> str:
    """A path as people write it, such as ``memory.files[0].uid``; long ones lose their start."""
    text = "".join(_spelled_step(step) for step in where).removeprefix(".")
    return text if len(text) <= _SPELLED_MAX else "..." + text[-_SPELLED_MAX:]


def workflow_error(source: str, problems: Iterable[Problem], *, locate: Callable[[Problem], Mark]) -> WorkflowError:
    """One error for all ``problems``, one a line as ``source:line:column: path: what``, in the document's order."""
    placed = sorted(((locate(problem), problem) for problem in problems), key=lambda pair: pair[0])
    return WorkflowError("\n".join(_lines(printable(source), placed)))


def printable(text: str) -> str:
    """``text`` with what could forge a line or move a cursor written as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _lines(source: str, placed: list[tuple[Mark, Problem]]) -> Iterator[str]:
    for (line, column), problem in placed[:REPORTED_MAX]:
        path = spelled(problem.where)
        yield f"{source}:{line}:{column}: {path}{': ' if path else ''}{problem.sentence()}"
    if len(placed) > REPORTED_MAX:
        yield f"{source}: and {len(placed) - REPORTED_MAX} more problems"


def _spelled_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_STEP.fullmatch(step) else ".(key)"


def _folded(word: str) -> str:
    """``maxSizeBytes``, ``max-size-bytes`` and ``max_size_bytes`` as one word."""
    return re.sub(r"[_.\-\s]", "", word).casefold()
