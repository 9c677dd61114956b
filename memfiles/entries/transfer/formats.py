"""The file formats of an import: Markdown and JSON Lines, which an export writes, and those of three other programs.

A Markdown file holds one entry: YAML frontmatter for its fields and the content after it, byte for byte. Every field is
on one line of its own, so no value can end the frontmatter, and everything after its last line feed is the content:
exporting and importing an entry changes nothing. A JSON Lines file holds one object per line, content included.

Sources of the other layouts: Anthropic's memory tool (``memory_20250818``: text files below ``/memories``); the
reference memory server of the Model Context Protocol (a knowledge graph, one JSON object per line); Claude Code
(``CLAUDE.md``, and ``projects/<project>/memory/`` with an index ``MEMORY.md`` and one Markdown file per topic).
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Literal, NoReturn, get_args

from memfiles.entries.transfer.document import (
    Document,
    Parsed,
    Skipped,
    document_of,
    fields_of,
    joined,
    key_problem,
    printed,
    text_in,
)
from memfiles.errors import InvalidArgument, WorkflowError
from memfiles.workflow import yaml_source
from memfiles.workflow.yaml_text import plain_value

Format = Literal["markdown", "jsonl", "memory-directory", "memory-server", "claude-code"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIX = ".md"
_FENCE = "---\n"
_SLUG_MAX = 48
_HUGE = r"(?![0-9.]+[eE][+-]?[0-9]+\Z|[0-9][0-9A-Za-z]{99})"  # may be a number that a reader refuses
_PLAIN = re.compile(_HUGE + r"[A-Za-z0-9](?:[A-Za-z0-9 ._/@:+-]*[A-Za-z0-9._/@+-])?", re.ASCII)
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_OPENING = re.compile(r"\ufeff?---[ \t]*\r?\n")
_CLOSING = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
INDEX = "MEMORY.md"
INSTRUCTIONS = ("CLAUDE.md", "CLAUDE.local.md")
_WIKI_LINK = re.compile(r"\[\[([^\[\]|#\n]{1,255})(?:[|#][^\[\]\n]*)?\]\]")
_POINTER = re.compile(r"[-*+]\s+\[[^\]\n]*\]\(([^)\n]+)\)")
_LOOSE_FIELD = re.compile(r"^[ \t]*(name|description|type):[ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE)
_STEP_INTO = ("memory", "projects", ".claude")


def file_name(document: Document) -> str:
    """The file name of an entry: readable, the same at every export, and safe on every file system.

    A slug of the key, and a hash that distinguishes entries with equal slugs. It holds lower-case ASCII letters, digits
    and hyphens; because of the hash it is not a name that Windows reserves.
    """
    plain = unicodedata.normalize("NFKD", document.key).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:_SLUG_MAX].strip("-") or "entry"
    digest = hashlib.sha256(json.dumps(document.identity).encode()).hexdigest()
    return f"{slug}-{digest[:12]}{SUFFIX}"


def render_markdown(document: Document) -> bytes:
    """The file of an entry. ``InvalidArgument`` for half of a surrogate pair, which no file can hold."""
    lines = [f"{name}: {_written(value)}\n" for name, value in fields_of(document).items()]
    return _encoded("".join([_FENCE, *lines, _FENCE, document.content]))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument("an entry holds half of a surrogate pair, which no file can hold") from None


def parse_markdown(data: bytes, *, where: str) -> Parsed:
    """The entry in one file; ``where`` names the file in reports."""
    text = text_in(data, where)
    if isinstance(text, Skipped):
        return Parsed(skipped=(text,))
    frontmatter, content = split(text)
    fields = fields_in(frontmatter, where=where)
    if isinstance(fields, Skipped):
        return Parsed(skipped=(fields,))
    return document_of(fields, content, where=where)


def split(text: str) -> tuple[str, str]:
    """The frontmatter of a Markdown file, with its first line so that lines keep their numbers, and the rest.

    A text without frontmatter is all content. White space at the ends of the two fences, and a byte order mark, are
    ignored: editors add them.
    """
    opening = _OPENING.match(text)
    closing = _CLOSING.search(text, opening.end()) if opening else None
    return (text[: closing.start()], text[closing.end() :]) if closing else ("", text)


def fields_in(frontmatter: str, *, where: str) -> dict[str, Any] | Skipped:
    """The fields of a frontmatter, or why it cannot be read; none if it is empty."""
    lines = [line.strip() for line in frontmatter.splitlines()[1:]]
    if all(not line or line.startswith("#") for line in lines):
        return {}
    try:
        value = yaml_source.parse(frontmatter, name=where).value
    except WorkflowError as error:
        return _refused(error, where)
    return value if isinstance(value, dict) else Skipped(where, "its frontmatter is not a mapping")


def _refused(error: WorkflowError, where: str) -> Skipped:
    """The first problem of a frontmatter, with its place."""
    first = str(error).partition("\n")[0]
    place = re.match(re.escape(where) + r"(?::\d+:\d+)?", first)
    end = place.end() if place else 0
    return Skipped(first[:end] or where, "its frontmatter cannot be read: " + first[end:].lstrip(": "))


def _written(value: Any) -> str:
    """The value in YAML: text without quotes if that reads as itself, also within a list, and else as JSON has it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and ": " not in value and plain_value(value) == value:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)  # line ends that only YAML knows


def render_line(document: Document) -> bytes:
    """The line of an entry, with its line feed. ``InvalidArgument`` for half of a surrogate pair."""
    fields = fields_of(document) | {"content": document.content}
    return _encoded(json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n")


def parse_lines(data: bytes, *, where: str) -> Parsed:
    """The entries in a file; a line without an entry is reported with its number."""
    return joined(_line_entry(found, at) for found, at in line_objects(data, where=where))


def line_objects(data: bytes, *, where: str) -> Iterator[tuple[dict[str, Any] | Skipped, str]]:
    """Every line's object, or why there is none, with its place as ``where:line``. Blank lines are skipped.

    Lines end with a line feed only: JSON texts may hold other line-end characters unescaped.
    """
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            at = f"{where}:{number}"
            yield _object(line, at), at


def _line_entry(found: dict[str, Any] | Skipped, at: str) -> Parsed:
    if isinstance(found, Skipped):
        return Parsed(skipped=(found,))
    fields = dict(found)
    content = fields.pop("content", None)
    if not isinstance(content, str):
        return Parsed(skipped=(Skipped(at, "it has no content" if content is None else "content must be text"),))
    return document_of(fields, content, where=at)


def _object(line: bytes, at: str) -> dict[str, Any] | Skipped:
    try:
        value = json.loads(line.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Skipped(at, "it holds half of a surrogate pair, which is not a character")
    except UnicodeDecodeError:
        return Skipped(at, "this line is not UTF-8")
    except json.JSONDecodeError as error:
        return Skipped(f"{at}:{error.colno}", f"this is not JSON: {error.msg}")
    except ValueError as error:
        return Skipped(at, str(error))
    except RecursionError:
        return Skipped(at, "it is nested too deeply")
    return value if isinstance(value, dict) else Skipped(at, "this line is not an object")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) != len(pairs):
        raise ValueError("it has the same field twice")
    return held


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def memory_file(data: bytes, *, path: str) -> Parsed:
    """A file of a memory directory: the key is the path below ``/memories``, the content the text."""
    text = text_in(data, printed(path))
    if isinstance(text, Skipped):
        return Parsed(skipped=(text,))
    return _checked(Document(path, text, where=path))


def knowledge_graph(data: bytes, *, where: str) -> Parsed:
    """The memory server's ``memory.jsonl``: an entity becomes an entry with one observation per line.

    The key is the entity's name, its type the only tag. A relation becomes a line ``relationType: other`` at the end of
    the entity it starts from, and a link to the other one; a relation that starts from no entity is reported.
    """
    entities: list[Document | Skipped] = []
    relations: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for found, at in line_objects(data, where=where):
        kind = None if isinstance(found, Skipped) else found.get("type")
        if isinstance(found, Skipped):
            entities.append(found)
        elif kind == "relation" and all(isinstance(found.get(it), str) for it in ("from", "to", "relationType")):
            relations.setdefault(found["from"], []).append((found, at))
        elif kind == "entity":
            entities += [_entity(found, at), *_lost_observations(found, at)]
        elif kind == "relation":
            entities.append(Skipped(at, "a relation needs from, to and relationType, all of them text"))
        else:
            known = isinstance(kind, str)
            entities.append(Skipped(at, "this is neither an entity nor a relation" if known else "it has no type"))
    read = joined(_with_relations(entity, relations) for entity in entities)
    left = [Skipped(at, "this relation starts from no entity in the file")
            for group in relations.values() for _, at in group]  # fmt: skip
    return Parsed(read.documents, (*read.skipped, *left))


def _entity(found: Mapping[str, Any], at: str) -> Document | Skipped:
    name, observations = found.get("name"), found.get("observations", [])
    if not isinstance(name, str):
        return Skipped(at, "this entity has no name")
    if not isinstance(observations, list):
        return Skipped(at, "the observations of an entity must be a list of texts")
    texts = [text for text in observations if isinstance(text, str)]
    return Document(name, "\n".join(texts), tags=_tag(found.get("entityType")), where=at)


def _lost_observations(found: Mapping[str, Any], at: str) -> Iterator[Skipped]:
    """A report of the observations that are not text; the entity keeps the others, as the server does on its disk."""
    observations = found.get("observations")
    lost = sum(not isinstance(text, str) for text in observations) if isinstance(observations, list) else 0
    if lost:
        yield Skipped(at, f"{lost} of the observations of this entity are not text; the rest was read")


def _with_relations(entity: Document | Skipped, relations: dict[str, list[tuple[dict[str, Any], str]]]) -> Parsed:
    if isinstance(entity, Skipped):
        return Parsed(skipped=(entity,))
    if problem := key_problem(entity.key):
        return Parsed(skipped=(Skipped(entity.where, problem),))
    own = [relation for relation, _ in relations.pop(entity.key, [])]
    lines = [entity.content] * bool(entity.content) + [f"{it['relationType']}: {it['to']}" for it in own]
    links = tuple(dict.fromkeys(it["to"] for it in own))
    return Parsed((replace(entity, content="\n".join(lines), links=links or None),))


def claude_code_file(data: bytes, *, path: str, present: frozenset[str]) -> Parsed:
    """A file of a Claude Code memory; ``present`` are the paths of all files that were found.

    A topic's key is the ``name`` in its frontmatter, or else its file name; the ``description`` becomes the first
    paragraph of the content, ``type`` a tag, and ``[[names]]`` in the text links. ``CLAUDE.md`` becomes one entry. An
    index that only points at topics is reported, because they are entries themselves.
    """
    text = text_in(data, printed(path))
    if isinstance(text, Skipped):
        return Parsed(skipped=(text,))
    place = PurePosixPath(path)
    if place.name == INDEX and _only_points(text, folder=place.parent, present=present):
        return Parsed(skipped=(Skipped(printed(path), "an index of topic files, which are imported themselves"),))
    if place.name in (INDEX, *INSTRUCTIONS):
        return _checked(Document(_key(place, place.name), text, where=path))
    frontmatter, body = split(text)
    fields = fields_in(frontmatter, where=path)
    if isinstance(fields, Skipped):  # not YAML, as when a model wrote ``description: Fix: use this``
        fields = {found[1]: found[2].strip("\"' \t") for found in _LOOSE_FIELD.finditer(frontmatter)}
    return _topic(fields, body, place=place)


def _topic(fields: Mapping[str, Any], body: str, *, place: PurePosixPath) -> Parsed:
    name, metadata, description = map(fields.get, ("name", "metadata", "description"))
    kind = fields.get("type") or (metadata.get("type") if isinstance(metadata, dict) else None)
    content = body.strip("\n")
    if isinstance(description, str) and description.strip() and description.strip() not in content:
        content = f"{description.strip()}\n\n{content}"
    links = tuple(dict.fromkeys(_WIKI_LINK.findall(content)))
    key = _key(place, name if isinstance(name, str) and name.strip() else place.stem)
    return _checked(Document(key, content, tags=_tag(kind), links=links or None, where=str(place)))


def _key(place: PurePosixPath, name: str) -> str:
    """``name`` below the folders that distinguish one project's memory from another's."""
    steps = [step for step in place.parent.parts if step not in _STEP_INTO]
    return "/".join([*steps, name])


def _only_points(text: str, *, folder: PurePosixPath, present: frozenset[str]) -> bool:
    """Whether all lines but headings point at files that are there, and at least one does."""
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    targets = [_POINTER.match(line) for line in lines]
    return bool(lines) and all(target and str(folder / target[1]) in present for target in targets)


def _tag(kind: object) -> tuple[str, ...]:
    return (kind.strip(),) if isinstance(kind, str) and kind.strip() else ()


def _checked(document: Document) -> Parsed:
    problem = key_problem(document.key) or ("this is not text: it holds a NUL" if "\0" in document.content else None)
    return Parsed(skipped=(Skipped(printed(document.where), problem),)) if problem else Parsed((document,))
