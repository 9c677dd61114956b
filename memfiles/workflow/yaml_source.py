"""YAML parser for workflows: a strict subset, as plain values with their positions.

The rule this file guards: a document has one meaning. Tags, anchors, aliases, merge keys, duplicate keys and second
documents are errors. Scalars follow YAML 1.2. Depth and size are bounded while parsing, before anything recurses or
expands. JSON is part of this subset.

Only PyYAML's events are used. Its C parser, if it was built with one, is about ten times faster; the Python parser
accepts the same documents except for tabs between tokens, and reports the same positions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memfiles.errors import WorkflowError
from memfiles.workflow.problems import LineColumn, Problem, Where, workflow_error
from memfiles.workflow.yaml_text import YamlText, checked, mark_after, plain_value, read_bytes

if TYPE_CHECKING:
    import yaml

DEPTH_MAX = 64
NODES_MAX = 250_000
"""Keys, values and collections. 10,000 declared files with all their fields and a reference each are 180,000."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ADVICE = {
    "mapping values are not allowed": "quote a text that contains ': ', and align keys with spaces",
    "cannot start any token": "indent with spaces, not tabs, and quote a text that starts with @ ` % or a tab",
    "unexpected end of stream": "close the quote",
    "expected ',' or": "close the bracket, or separate the items with a comma",
    "expected key": "check the indentation and the quotes of this line and the ones above",
    "expected <block end>": "check the indentation and the quotes of this line and the ones above",
    "could not find expected ':'": "put ': ' after the key, or indent the line",
    "unknown escape character": "write a backslash as \\\\, or use single quotes",
}


@dataclass(slots=True)
class NodePosition:
    """The positions of a collection and of its items."""

    mark: LineColumn
    keys: dict[str | int, LineColumn] = field(default_factory=dict)
    values: dict[str | int, LineColumn | NodePosition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A document: its value and the position of every part."""

    name: str
    value: Any
    place: NodePosition | LineColumn
    not_text: tuple[Where, ...] = ()
    """Paths of keys that YAML does not read as text (``1:``, ``true:``); ``value`` has them in JSON spelling."""

    def mark(self, where: Where, *, at_key: bool = False) -> LineColumn:
        """The position of the value at ``where``, or of its key; if it is missing, of its parent."""
        place, holder = self.place, self.place
        for step in where:
            holder = place
            if not isinstance(place, NodePosition) or step not in place.values:
                break
            place = place.values[step]
        if at_key and isinstance(holder, NodePosition) and where[-1] in holder.keys:
            return holder.keys[where[-1]]
        return place.mark if isinstance(place, NodePosition) else place

    def error(self, problems: list[Problem]) -> WorkflowError:
        """One error for all problems of this document."""
        return workflow_error(self.name, problems, locate=lambda it: self.mark(it.where, at_key=it.at_key))


def load(path: str | os.PathLike[str]) -> YamlDocument:
    """The document in the file at ``path`` (YAML or JSON, UTF-8, at most 4 MiB), else a ``WorkflowError``."""
    return parse(read_bytes(path), name=os.fspath(path))


def parse(data: bytes | str, *, name: str, fast: bool = True) -> YamlDocument:
    """The document in ``data``; every error is a ``WorkflowError`` that starts with ``name:line:column:``.

    ``fast`` False uses the Python parser even if PyYAML has the C parser.
    """
    text = checked(data, source=name)
    builder = _Builder(name, text)
    try:
        for event in _events(text.text, fast=fast):
            builder.take(event)
    except _Unreadable as error:
        what, mark = error.args
        raise builder.error(what, at=min(mark, mark_after(text.text))) from None
    return builder.source()


class _Unreadable(Exception):
    """An error of the parser: its text and its mark. Never leaves this module."""


@dataclass(slots=True)
class _Open:
    """A collection that is not closed yet."""

    value: dict[str, Any] | list[Any]
    place: NodePosition
    key: str | None = None
    """The key of the next value, in a mapping."""

    def awaits_key(self) -> bool:
        """Whether the next item is a key."""
        return self.key is None and isinstance(self.value, dict)

    def put(self, value: Any, place: NodePosition | LineColumn) -> None:
        """Add the next item."""
        if isinstance(self.value, list):
            self.place.values[len(self.value)] = place
            self.value.append(value)
        elif self.key is not None:
            self.place.values[self.key] = place
            self.value[self.key] = value
            self.key = None

    def step(self) -> tuple[str | int, ...]:
        """The last step of the path to the next item."""
        if isinstance(self.value, list):
            return (len(self.value),)
        return () if self.key is None else (self.key,)


class _Builder:
    """Builds one value and its positions from parser events, without recursion."""

    def __init__(self, name: str, text: YamlText) -> None:
        self._name = name
        self._text = text
        self._documents: list[Any] = []
        self._root = NodePosition((1, 1))
        self._stack = [_Open(self._documents, self._root)]
        self._nodes = 0
        self._not_text: list[Where] = []
        self._takers: dict[str, Callable[[Any], None]] = {
            "ScalarEvent": self._take_scalar,
            "MappingStartEvent": self._take_start,
            "SequenceStartEvent": self._take_start,
            "MappingEndEvent": self._take_end,
            "SequenceEndEvent": self._take_end,
            "AliasEvent": self._take_alias,
            "DocumentStartEvent": self._take_document,
        }

    def take(self, event: yaml.Event) -> None:
        """Add one event; refuse events outside the subset."""
        taker = self._takers.get(type(event).__name__)
        if taker:
            taker(event)

    def source(self) -> YamlDocument:
        """The document, after all events."""
        if not self._documents:
            raise self.error("the document is empty; declare `memory: {files: [...]}`", at=(1, 1))
        return YamlDocument(self._name, self._documents[0], self._root.values[0], tuple(self._not_text))

    def error(self, what: str, *, at: LineColumn, key: str | None = None) -> WorkflowError:
        """An error at a position, with the current path."""
        where = _where(self._stack) + (() if key is None else (key,))
        return workflow_error(self._name, [Problem(where, what)], locate=lambda problem: at)

    def _take_scalar(self, event: Any) -> None:
        self._count(event)
        top, mark = self._stack[-1], _mark_of(event)
        value = self._value_of(event, mark)
        if top.awaits_key():
            self._take_key(top, event, value, mark)
        else:
            top.put(value, mark)

    def _value_of(self, event: Any, mark: LineColumn) -> Any:
        if not event.style:
            try:
                return plain_value(self._text.original(event.value, double_quoted=False))
            except ValueError as error:
                raise self.error(str(error), at=mark) from None
        text = self._text.original(event.value, double_quoted=event.style == '"')
        if event.style == '"' and not text.isascii() and _LONE_SURROGATE.search(text):
            raise self.error("this is half of a surrogate pair; write both escapes, or neither", at=mark)
        return text

    def _take_key(self, top: _Open, event: Any, value: Any, mark: LineColumn) -> None:
        if event.value == "<<" and not event.style:
            raise self.error("merge keys (<<) are not supported; write the keys out", at=mark)
        key = value if isinstance(value, str) else json.dumps(value)
        if key in top.place.keys:
            first = top.place.keys[key][0]
            raise self.error(f"this key is already on line {first}; keep one of them", at=mark, key=key)
        top.place.keys[key] = mark
        top.key = key
        if not isinstance(value, str):
            self._not_text.append(_where(self._stack))

    def _take_start(self, event: Any) -> None:
        self._count(event)
        top, mark = self._stack[-1], _mark_of(event)
        if top.awaits_key():
            raise self.error("a key must be text, not a list or mapping", at=mark)
        if len(self._stack) > DEPTH_MAX:
            raise self.error(f"this is nested more than {DEPTH_MAX} levels deep; make it flatter", at=mark)
        empty: dict[str, Any] | list[Any] = {} if type(event).__name__ == "MappingStartEvent" else []
        self._stack.append(_Open(empty, NodePosition(mark)))

    def _take_end(self, event: Any) -> None:
        closed = self._stack.pop()
        self._stack[-1].put(closed.value, closed.place)

    def _take_alias(self, event: Any) -> None:
        raise self.error("aliases (*) are not supported; write the value out", at=_mark_of(event))

    def _take_document(self, event: Any) -> None:
        if self._documents:
            raise self.error("a second document starts here; keep one document a file", at=_mark_of(event))

    def _count(self, event: Any) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise self.error(f"more than {NODES_MAX} keys and values; split the workflow", at=_mark_of(event))
        if event.anchor is not None:
            raise self.error("anchors (&) are not supported; remove it", at=_mark_of(event))
        if event.tag is not None:
            raise self.error("tags (!) are not supported; remove it, or put the text in quotes", at=_mark_of(event))


def _where(stack: list[_Open]) -> Where:
    """The path to the next item; the first frame of the stack holds the document itself."""
    return tuple(step for frame in stack[1:] for step in frame.step())


def _mark_of(event: Any) -> LineColumn:
    return _from_one(event.start_mark)


def _from_one(mark: Any) -> LineColumn:
    """A position of PyYAML, which counts from 0."""
    return mark.line + 1, mark.column + 1


def _events(text: str, *, fast: bool) -> Iterator[yaml.Event]:
    """All events of the document; the parser's errors become ``_Unreadable``."""
    import yaml  # 18 ms, saved for callers that declare their files in Python

    loader: Any = (getattr(yaml, "CSafeLoader", yaml.SafeLoader) if fast else yaml.SafeLoader)(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    except yaml.MarkedYAMLError as error:
        raise _Unreadable(_explained(error), _problem_mark(error)) from error
    except (ValueError, OverflowError) as error:  # the Python parser, at an escape or directive out of range
        raise _Unreadable("an escape or directive is out of range", _from_one(loader.get_mark())) from error
    finally:
        loader.dispose()


def _problem_mark(error: yaml.MarkedYAMLError) -> LineColumn:
    mark = error.problem_mark or error.context_mark
    return _from_one(mark) if mark else (1, 1)


def _explained(error: yaml.MarkedYAMLError) -> str:
    """The parser's message, which names characters and token types but never text, and what to do."""
    problem = error.problem or "it cannot be read"
    advice = next((advice for words, advice in _ADVICE.items() if words in problem), "check the line's syntax")
    begun = ""
    if error.context and error.context_mark and _problem_mark(error)[0] != error.context_mark.line + 1:
        begun = f" {error.context} that starts on line {error.context_mark.line + 1}"
    return f"invalid YAML: {problem}{begun}; {advice}"
