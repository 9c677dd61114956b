"""YAML parser for workflows: a strict subset, as plain values with their positions.

The rule this file guards: a document has one meaning. Tags, anchors, aliases, merge keys, duplicate keys and second
documents are errors. Scalars follow YAML 1.2. Depth and size are bounded while parsing, before anything expands. JSON
is part of this subset.

Only PyYAML's events are used. Its C parser, if it was built with one, is about ten times faster; the Python parser
accepts the same documents except for tabs between tokens, and reports the same positions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from memfiles.errors import WorkflowError
from memfiles.records import late_pattern
from memfiles.workflow.problems import LineColumn, Problem, Where, workflow_error
from memfiles.workflow.yaml_text import Scalar, YamlText, checked_text, mark_after, plain_value, read_bytes

if TYPE_CHECKING:
    import yaml

DEPTH_MAX = 64
_TOO_DEEP = f"this is nested more than {DEPTH_MAX} levels deep; make it flatter"
NODES_MAX = 250_000
"""Keys, values and collections. 10,000 declared files with all their fields and a reference each are 180,000."""

_LONE_SURROGATE = late_pattern("[\ud800-\udfff]")
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


class NodePosition:
    """The positions of a collection and of its items."""

    def __init__(self, mark: LineColumn) -> None:
        self.mark = mark
        self.keys: dict[str | int, LineColumn] = {}
        self.values: dict[str | int, LineColumn | NodePosition] = {}


class YamlDocument(Struct, frozen=True):
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
        return workflow_error(self.name, [(self.mark(it.where, at_key=it.at_key), it) for it in problems])


def load(path: str | os.PathLike[str]) -> YamlDocument:
    """The document in the file at ``path`` (YAML or JSON, UTF-8, at most 32 MiB), else a ``WorkflowError``."""
    return parse(read_bytes(path), name=os.fspath(path))


def parse(data: bytes | str, *, name: str, fast: bool = True) -> YamlDocument:
    """The document in ``data``; every error is a ``WorkflowError`` that starts with ``name:line:column:``.

    ``fast`` False uses the Python parser even if PyYAML has the C parser.
    """
    text = checked_text(data, source=name)
    reader = _Reader(name, text, _events(text.text, fast=fast))
    try:
        return reader.document()
    except _Unreadable as error:
        what, mark = error.args
        raise reader.error(what, at=min(mark, mark_after(text.text))) from None


class _Unreadable(Exception):
    """An error of the parser: its text and its mark. Never leaves this module."""


class _Reader:
    """Reads a document from the parser's events. The depth of the document bounds the recursion."""

    def __init__(self, name: str, text: YamlText, events: Iterator[Any]) -> None:
        self._name = name
        self._text = text
        self._events = events
        self._where: list[str | int] = []
        self._nodes = 0
        self._not_text: list[Where] = []

    def document(self) -> YamlDocument:
        """The only document of the stream; what is outside the subset is refused."""
        found: YamlDocument | None = None
        for event in self._events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent" and found is not None:
                raise self.error(
                    "a second document starts here; keep one document a file", at=_from_one(event.start_mark)
                )
            if not kind.startswith(("Stream", "Document")):
                value, place = self._node(event)
                found = YamlDocument(self._name, value, place, tuple(self._not_text))
        if found is None:
            raise self.error("the document is empty; declare `memory: {files: [...]}`", at=(1, 1))
        return found

    def error(self, what: str, *, at: LineColumn, key: str | None = None) -> WorkflowError:
        """An error at a position, with the current path."""
        where = (*self._where, *([] if key is None else [key]))
        return workflow_error(self._name, [(at, Problem(where, what))])

    def _node(self, event: Any) -> tuple[Any, NodePosition | LineColumn]:
        """The value that starts with ``event``, and its position."""
        mark, kind = self._counted(event), type(event).__name__
        if kind == "ScalarEvent":
            return self._scalar(event, mark), mark
        if len(self._where) >= DEPTH_MAX:
            raise self.error(_TOO_DEEP, at=mark)
        return self._mapping(mark) if kind == "MappingStartEvent" else self._sequence(mark)

    def _mapping(self, mark: LineColumn) -> tuple[dict[str, Any], NodePosition]:
        value: dict[str, Any] = {}
        place = NodePosition(mark)
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            key = self._key(event, place)
            self._where.append(key)
            value[key], place.values[key] = self._node(next(self._events))
            self._where.pop()
        return value, place

    def _sequence(self, mark: LineColumn) -> tuple[list[Any], NodePosition]:
        value: list[Any] = []
        place = NodePosition(mark)
        self._where.append(0)  # the next item, also where the parser finds none
        while type(event := next(self._events)).__name__ != "SequenceEndEvent":
            item, place.values[len(value)] = self._node(event)
            value.append(item)
            self._where[-1] = len(value)
        self._where.pop()
        return value, place

    def _key(self, event: Any, place: NodePosition) -> str:
        mark = self._counted(event)
        if type(event).__name__ != "ScalarEvent":
            raise self.error("a key must be text, not a list or mapping", at=mark)
        value = self._scalar(event, mark)
        if event.value == "<<" and not event.style:
            raise self.error("merge keys (<<) are not supported; write the keys out", at=mark)
        key = value if isinstance(value, str) else json.dumps(value)
        if key in place.keys:
            first = place.keys[key][0]
            raise self.error(f"this key is already on line {first}; keep one of them", at=mark, key=key)
        place.keys[key] = mark
        if not isinstance(value, str):
            self._not_text.append((*self._where, key))
        return key

    def _scalar(self, event: Any, mark: LineColumn) -> Scalar:
        if not event.style:
            try:
                return plain_value(self._text.original(event.value, double_quoted=False))
            except ValueError as error:
                raise self.error(str(error), at=mark) from None
        text = self._text.original(event.value, double_quoted=event.style == '"')
        if event.style == '"' and not text.isascii() and _LONE_SURROGATE.search(text):
            raise self.error("this is half of a surrogate pair; write both escapes, or neither", at=mark)
        return text

    def _counted(self, event: Any) -> LineColumn:
        """Count a key or value and return its position; refuse aliases, anchors and tags."""
        mark = _from_one(event.start_mark)
        if type(event).__name__ == "AliasEvent":
            raise self.error("aliases (*) are not supported; write the value out", at=mark)
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise self.error(f"more than {NODES_MAX} keys and values; split the workflow", at=mark)
        if event.anchor is not None:
            raise self.error("anchors (&) are not supported; remove it", at=mark)
        if event.tag is not None:
            raise self.error("tags (!) are not supported; remove it, or put the text in quotes", at=mark)
        return mark


def _from_one(mark: Any) -> LineColumn:
    """A position of PyYAML, which counts from 0."""
    return mark.line + 1, mark.column + 1


def import_parser() -> ModuleType:
    """PyYAML, imported late: 18 ms, saved for callers that declare their files in Python."""
    import yaml

    return yaml


def _events(text: str, *, fast: bool) -> Iterator[yaml.Event]:
    """All events of the document; the parser's errors become ``_Unreadable``."""
    yaml = import_parser()
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
    if "maximum nesting depth" in problem:  # libyaml 0.2.6 reads 1,000 levels ahead, then gives up by itself
        return _TOO_DEEP
    advice = next((advice for words, advice in _ADVICE.items() if words in problem), "check the line's syntax")
    begun = ""
    if error.context and error.context_mark and _problem_mark(error)[0] != error.context_mark.line + 1:
        begun = f" {error.context} that starts on line {error.context_mark.line + 1}"
    return f"invalid YAML: {problem}{begun}; {advice}"
