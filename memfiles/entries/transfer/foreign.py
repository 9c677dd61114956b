"""Other programs' memories as entries: what stands in their files, under which key, and what cannot be taken over.

Sources of the layouts: Anthropic's memory tool (``memory_20250818``: text files below ``/memories``); the reference
memory server of the Model Context Protocol (a knowledge graph, one JSON object a line); Claude Code (``CLAUDE.md``,
and ``projects/<project>/memory/`` with an index ``MEMORY.md`` and one Markdown file a topic).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from memfiles.entries.results import Skipped
from memfiles.entries.transfer import json_lines
from memfiles.entries.transfer.document import Document, Extra, Parsed, joined, key_problem, printed, text_in
from memfiles.entries.transfer.markdown import fields_in, split

INDEX = "MEMORY.md"
INSTRUCTIONS = ("CLAUDE.md", "CLAUDE.local.md")

_WIKI_LINK = re.compile(r"\[\[([^\[\]|#\n]{1,255})(?:[|#][^\[\]\n]*)?\]\]")
_POINTER = re.compile(r"[-*+]\s+\[[^\]\n]*\]\(([^)\n]+)\)")
_LOOSE_FIELD = re.compile(r"^[ \t]*(name|description|type):[ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE)
_STEP_INTO = ("memory", "projects", ".claude")


def memory_file(data: bytes, *, path: str) -> Parsed:
    """A file of a memory directory: its key is the path from ``/memories`` on, its content the text."""
    text = text_in(data, printed(path))
    if isinstance(text, Skipped):
        return Parsed(skipped=(text,))
    return _checked(Document(path, text, where=path))


def knowledge_graph(data: bytes, *, where: str) -> Parsed:
    """The memory server's ``memory.jsonl``: an entity is an entry with an observation a line, and its relations.

    The key is the entity's name and the one tag its type. A relation is a line at the end of the entity it starts
    from, ``relationType: other``, and a link to the other one; one that starts from no entity is reported.
    """
    entities: list[Document | Skipped] = []
    relations: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for found, at in json_lines.objects(data, where=where):
        kind = None if isinstance(found, Skipped) else found.get("type")
        if isinstance(found, Skipped):
            entities.append(found)
        elif kind == "relation" and _are_texts(found, "from", "to", "relationType"):
            relations.setdefault(found["from"], []).append((found, at))
        else:
            entities.append(_entity(found, at) if kind == "entity" else Skipped(at, _unknown(kind)))
            entities += _lost_observations(found, at) if kind == "entity" else ()
    read = joined(_with_relations(entity, relations) for entity in entities)
    left = [Skipped(at, "this relation starts from no entity in the file")
            for group in relations.values() for _, at in group]  # fmt: skip
    return Parsed(read.documents, (*read.skipped, *left))


def claude_code_file(data: bytes, *, path: str, present: frozenset[str]) -> Parsed:
    """A file of a Claude Code memory; ``present`` are the paths of all files that were found.

    A topic's key is its frontmatter's ``name``, or else its file name; the ``description`` is the first paragraph of
    the content, ``type`` is a tag, and ``[[names]]`` in the text are links. ``CLAUDE.md`` is one entry as it is. An
    index that does nothing but point at topics is reported, for they are entries themselves.
    """
    text = text_in(data, printed(path))
    if isinstance(text, Skipped):
        return Parsed(skipped=(text,))
    place = PurePosixPath(path)
    if place.name == INDEX and _only_points(text, folder=place.parent, present=present):
        return Parsed(skipped=(Skipped(printed(path), "an index of topic files, which are read themselves"),))
    if place.name in (INDEX, *INSTRUCTIONS):
        return _checked(Document(_key(place, place.name), text, where=path))
    frontmatter, body = split(text)
    fields = fields_in(frontmatter, where=path)
    return _topic(_loose_fields(frontmatter) if isinstance(fields, Skipped) else fields, body, place=place)


def _loose_fields(frontmatter: str) -> dict[str, Any]:
    """The fields of a frontmatter that is no YAML, as when a model wrote ``description: Fix: use this``."""
    return {found[1]: found[2].strip("\"' \t") for found in _LOOSE_FIELD.finditer(frontmatter)}


def _topic(fields: Mapping[str, Any], body: str, *, place: PurePosixPath) -> Parsed:
    name = fields.get("name")
    metadata = fields.get("metadata")
    kind = fields.get("type") or (metadata.get("type") if isinstance(metadata, dict) else None)
    description = fields.get("description")
    content = body.strip("\n")
    if isinstance(description, str) and description.strip() and description.strip() not in content:
        content = f"{description.strip()}\n\n{content}"
    links = tuple(dict.fromkeys(_WIKI_LINK.findall(content)))
    extra: dict[str, Extra] = {"links": links} if links else {}
    key = _key(place, name if isinstance(name, str) and name.strip() else place.stem)
    document = Document(key, content, tags=_tag(kind), extra=extra, where=str(place))
    return _checked(document)


def _key(place: PurePosixPath, name: str) -> str:
    """``name`` with the folders that tell one project's memory from another's before it."""
    steps = [step for step in place.parent.parts if step not in _STEP_INTO]
    return "/".join([*steps, name])


def _only_points(text: str, *, folder: PurePosixPath, present: frozenset[str]) -> bool:
    """Whether every line but headings points at a file that is there, and one does."""
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    targets = [_POINTER.match(line) for line in lines]
    return bool(lines) and all(target and str(folder / target[1]) in present for target in targets)


def _entity(found: Mapping[str, Any], at: str) -> Document | Skipped:
    name, observations = found.get("name"), found.get("observations", [])
    if not isinstance(name, str):
        return Skipped(at, "this entity has no name")
    if not isinstance(observations, list):
        return Skipped(at, "the observations of an entity must be a list of texts")
    texts = [text for text in observations if isinstance(text, str)]
    return Document(name, "\n".join(texts), tags=_tag(found.get("entityType")), where=at)


def _lost_observations(found: Mapping[str, Any], at: str) -> Iterator[Skipped]:
    """An entity keeps the observations that are texts, as the server does on its disk."""
    observations = found.get("observations")
    lost = sum(not isinstance(text, str) for text in observations) if isinstance(observations, list) else 0
    if lost:
        yield Skipped(at, f"{lost} of the observations of this entity are no text; the rest was read")


def _with_relations(entity: Document | Skipped, relations: dict[str, list[tuple[dict[str, Any], str]]]) -> Parsed:
    if isinstance(entity, Skipped):
        return Parsed(skipped=(entity,))
    if problem := key_problem(entity.key):
        return Parsed(skipped=(Skipped(entity.where, problem),))
    own = [relation for relation, _ in relations.pop(entity.key, [])]
    lines = [entity.content] * bool(entity.content) + [f"{it['relationType']}: {it['to']}" for it in own]
    links = tuple(dict.fromkeys(it["to"] for it in own))
    return Parsed((Document(entity.key, "\n".join(lines), tags=entity.tags, extra={"links": links} if links else {},
                            where=entity.where),))  # fmt: skip


def _unknown(kind: object) -> str:
    words = {"relation": "a relation needs from, to and relationType, all of them text"}
    return words.get(kind, "this is no entity and no relation") if isinstance(kind, str) else "it has no type"


def _are_texts(found: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(found.get(name), str) for name in names)


def _tag(kind: object) -> tuple[str, ...]:
    return (kind.strip(),) if isinstance(kind, str) and kind.strip() else ()


def _checked(document: Document) -> Parsed:
    problem = key_problem(document.key) or ("this is not text: it holds a NUL" if "\0" in document.content else None)
    return Parsed(skipped=(Skipped(printed(document.where), problem),)) if problem else Parsed((document,))
