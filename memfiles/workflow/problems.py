"""Problems of a document: their positions, their wording, and the checks across its parts.

The rule this file guards: no message repeats a value. Keys are shown only if they look like identifiers, because a
mis-indented line of somebody's memory may be read as a key.

The cross checks (repeated names, dangling references, undeclared levels) work on the plain data as written, valid or
not, so that one report holds these problems and those of the models. They skip values of a wrong type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from memfiles.errors import WorkflowError
from memfiles.records import NamedTuple, late_pattern
from memfiles.records.keys import case_clashes
from memfiles.records.levels import DEFAULT_LEVELS

Where = tuple[str | int, ...]
"""The path to a value from the root of a document: mapping keys and list positions (from 0)."""

LineColumn = tuple[int, int]
"""A line and a column, both from 1."""

REPORTED_MAX = 100
_GUESSED_FROM_MAX = 1000
_LISTED_MAX = 13
_SPELLED_MAX = 200
_IDENTIFIER = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@$./:+-")
_PLAIN_STEP = late_pattern(r"[\w@$][\w@$-]{0,63}")


class Problem(Struct, frozen=True):
    """One problem: its path, and a message with the remedy."""

    where: Where
    what: str
    at_key: bool = False
    """Whether the key itself is wrong, so that its position is shown instead of its value's."""
    written: str = ""
    """The word that was written where one of ``allowed`` was expected; the nearest one is suggested."""
    allowed: Collection[str] = ()

    def sentence(self) -> str:
        """The problem in words, with the nearest allowed word if there is one."""
        return self.what + did_you_mean(self.written, self.allowed)


def did_you_mean(written: str, allowed: Collection[str]) -> str:
    """The end of a message: the allowed word most like ``written``, else all allowed words if they are few."""
    nearest = nearest_to(written, allowed)
    if nearest:
        return f"; did you mean {nearest!r}?"
    return f"; use one of {', '.join(allowed)}" if 0 < len(allowed) <= _LISTED_MAX else ""


def nearest_to(written: str, allowed: Collection[str]) -> str | None:
    """The allowed word most like ``written``; None if none is similar."""
    if len(written) > 64 or len(allowed) > _GUESSED_FROM_MAX:  # difflib is quadratic
        return None
    from difflib import get_close_matches  # only for a document that is wrong

    by_folded = {_folded(word): word for word in allowed}
    nearest = get_close_matches(_folded(written), by_folded, n=1)
    return by_folded[nearest[0]] if nearest else None


def is_identifier(text: str) -> bool:
    """Whether ``text`` may appear in a message, as it looks like a name rather than content."""
    return 0 < len(text) <= 64 and text[0] not in "./:+-" and _IDENTIFIER.issuperset(text)


def in_quotes(text: object) -> str:
    """``text`` quoted, after a space, if it looks like an identifier; else nothing."""
    return f" {text!r}" if isinstance(text, str) and is_identifier(text) else ""


def path_text(where: Where) -> str:
    """A path as people write it, such as ``memory.files[0].uid``; the start of a long one is cut."""
    steps = (
        f"[{step}]" if isinstance(step, int) else f".{step}" if _PLAIN_STEP.fullmatch(step) else ".(key)"
        for step in where
    )
    text = "".join(steps).removeprefix(".")
    return text if len(text) <= _SPELLED_MAX else "..." + text[-_SPELLED_MAX:]


def workflow_error(source: str, problems: Iterable[tuple[LineColumn, Problem]]) -> WorkflowError:
    """One error for all ``problems``: a line each, ``source:line:column: path: what``, in the document's order."""
    placed = sorted(problems, key=lambda pair: pair[0])
    lines = []
    for (line, column), problem in placed[:REPORTED_MAX]:
        path = path_text(problem.where)
        lines.append(f"{printable(source)}:{line}:{column}: {path}{': ' if path else ''}{problem.sentence()}")
    if len(placed) > REPORTED_MAX:
        lines.append(f"{printable(source)}: and {len(placed) - REPORTED_MAX} more problems")
    return WorkflowError("\n".join(lines))


def printable(text: str) -> str:
    """``text`` with unprintable characters escaped, so that it cannot forge a line or move a cursor."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _folded(word: str) -> str:
    """``maxSizeBytes``, ``max-size-bytes`` and ``max_size_bytes`` as one word."""
    return re.sub(r"[_.\-\s]", "", word).casefold()


class Breach(NamedTuple):
    """A problem of a value: its kind, and the ``limit`` that the value breaks."""

    where: Where
    kind: str
    value: object = None
    limit: Any = None
    at_key: bool = False


_MESSAGES: dict[str, Callable[[Any], str]] = {
    "missing": lambda limit: "this key is missing; add it",
    "mapping": lambda limit: "this must be a mapping",
    "list": lambda limit: "this must be a list",
    "text": lambda limit: "this must be text",
    "whole": lambda limit: "this must be a whole number",
    "number": lambda limit: "this must be a number",
    "truth": lambda limit: "this must be true or false",
    "choice": lambda limit: f"use {one_of(limit)}",
    "least": lambda limit: f"this must be at least {limit}",
    "most": lambda limit: f"this must be at most {limit}",
    "short": lambda limit: f"this must be at least {limit} characters long",
    "long": lambda limit: f"this must be at most {limit} characters long",
    "wrong": str,
}


def one_of(choices: Iterable[object]) -> str:
    """Words to choose from, such as ``'r' or 'rw'``."""
    *most, last = map(repr, choices)
    return f"{', '.join(most)} or {last}" if most else last


def problem_of(breach: Breach) -> Problem:
    """The problem in the words of a document's author."""
    where, kind, value, limit, at_key = breach
    if kind == "unknown":
        return Problem(where, "unknown key", at_key=True, written=str(where[-1]), allowed=limit)
    if kind != "missing" and value is None:
        return Problem(where, "this key has no value; set one, or remove the key", at_key)
    what = _MESSAGES[kind](limit)
    if kind == "text" and isinstance(value, (bool, int, float)):
        what = f"{what}; put it in quotes"
    if kind == "whole" and isinstance(value, str):
        what = f"{what}, without quotes"
    return Problem(where, what, at_key)


class ParsedWorkflow(Struct, frozen=True):
    """A document, or a part of one, in the shape of the models, and the original positions of what it holds.

    ``origins`` maps paths in ``document`` to paths in the original. Values below a mapped path, and unmapped values,
    keep their keys.
    """

    document: Any
    problems: list[Problem] = field(default_factory=list)
    origins: dict[Where, Where] = field(default_factory=dict)

    def as_written(self, problem: Problem) -> Problem:
        """The problem at the path in the original document."""
        for length in range(len(problem.where), 0, -1):
            origin = self.origins.get(problem.where[:length])
            if origin is not None:
                return replace(problem, where=origin + problem.where[length:])
        return problem


def cross_problems(document: Mapping[str, Any]) -> list[Problem]:
    """The problems between the parts of a workflow's plain data (``memory`` and ``agents``)."""
    memory = _mapping(document.get("memory"))
    agents = _mapping(document.get("agents"))
    return [
        *_repeated_levels(memory),
        *_repeated_files(memory),
        *_case_problems(memory),
        *_ambiguous_names(memory),
        *_level_problems(memory, agents),
        *_agent_problems(memory, agents),
    ]


def _repeated_files(memory: Mapping[str, Any]) -> Iterator[Problem]:
    for key, of in (("uid", "another file"), ("name", "the file with uid")):
        first: dict[str, Mapping[str, Any]] = {}
        for where, file in _files(memory):
            value = file.get(key)
            if isinstance(value, str) and first.setdefault(value, file) is not file:
                other = in_quotes(first[value].get("uid")) if key == "name" else ""
                what = f"{key}{in_quotes(value)} is also used by {of}{other}; each file needs its own"
                yield Problem((*where, key), what)


def _case_problems(memory: Mapping[str, Any]) -> Iterator[Problem]:
    uids = {file["uid"]: where for where, file in _files(memory) if isinstance(file.get("uid"), str)}
    for first, uid in case_clashes(uids):
        yield Problem(
            (*uids[uid], "uid"),
            f"uid{in_quotes(uid)} differs from{in_quotes(first)} only by case, which some file systems ignore; "
            "change one",
        )


def _ambiguous_names(memory: Mapping[str, Any]) -> Iterator[Problem]:
    """A file may be asked for by its name or by its uid, so no name may be the uid of another file."""
    uids = {file["uid"] for _, file in _files(memory) if isinstance(file.get("uid"), str)}
    for where, file in _files(memory):
        name = file.get("name")
        if isinstance(name, str) and name in uids and name != file.get("uid"):
            what = f"name{in_quotes(name)} is the uid of another file; a call could mean either, so change one"
            yield Problem((*where, "name"), what)


def _repeated_levels(memory: Mapping[str, Any]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, level in _numbered(memory.get("levels")):
        if isinstance(level, str) and first.setdefault(level, index) != index:
            yield Problem(("memory", "levels", index), f"level{in_quotes(level)} is listed twice; remove one")


def _level_problems(memory: Mapping[str, Any], agents: Mapping[str, Any]) -> Iterator[Problem]:
    levels = [each for _, each in _numbered(memory.get("levels", DEFAULT_LEVELS)) if isinstance(each, str)]
    known, declared = frozenset(levels), ", ".join(filter(is_identifier, levels[:10]))
    for where, item in [*_files(memory), *_agents(agents)] if levels else ():
        level = item.get("level")
        if isinstance(level, str) and level not in known:
            yield Problem((*where, "level"), f"level{in_quotes(level)} is not declared; use one of {declared}")


def _agent_problems(memory: Mapping[str, Any], agents: Mapping[str, Any]) -> Iterator[Problem]:
    files = [file for _, file in _files(memory) if isinstance(file.get("uid"), str)]
    uids = {file["uid"] for file in files}
    uid_of_name = {file["name"]: file["uid"] for file in files if isinstance(file.get("name"), str)}
    for where, agent in _agents(agents):
        seen: set[str] = set()
        for index, ref in _numbered(agent.get("memory")):
            uid, at = _mapping(ref).get("id"), (*where, "memory", index, "id")
            if not isinstance(uid, str):
                continue
            if uid in seen:
                yield Problem(at, "this agent refers to this file twice; keep one reference")
            elif uid in uid_of_name and uid not in uids:
                yield Problem(at, f"this is a file name; refer to the file by its uid{in_quotes(uid_of_name[uid])}")
            elif uid not in uids:
                yield Problem(at, f"no file with uid{in_quotes(uid)} is declared", written=uid, allowed=uids)
            seen.add(uid)


def _files(memory: Mapping[str, Any]) -> list[tuple[Where, Mapping[str, Any]]]:
    return [(("memory", "files", index), _mapping(file)) for index, file in _numbered(memory.get("files"))]


def _agents(agents: Mapping[str, Any]) -> list[tuple[Where, Mapping[str, Any]]]:
    return [(("agents", name), _mapping(agent)) for name, agent in agents.items()]


def _numbered(value: Any) -> Iterable[tuple[int, Any]]:
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
