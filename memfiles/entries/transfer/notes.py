"""Markdown and text of other programs: one file is one entry, and its path, or a name in it, is the key.

Sources of the layouts: Anthropic's memory tool (``memory_20250818``: text files below ``/memories``); Claude Code
(``CLAUDE.md``, ``projects/<project>/memory/`` with an index ``MEMORY.md`` and one Markdown file per topic, and
``agent-memory/<agent>/`` of its subagents); Obsidian (vaults, ``[[links]]``); basic-memory (NOTE-FORMAT.md in its
repository); Google Cloud's Open Knowledge Format 0.2 (``okf/SPEC.md`` in GoogleCloudPlatform/knowledge-catalog).
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from memfiles.entries.drafts import MAX_TAG_BYTES
from memfiles.entries.transfer.document import Document, Parsed, Skipped, as_one, key_problem, printed, text_in
from memfiles.entries.transfer.folders import SourceFile
from memfiles.entries.transfer.formats import SUFFIX, fields_in, split
from memfiles.records.entry import MAX_LINKS, MAX_TAGS

INDEX = "MEMORY.md"
INSTRUCTIONS = ("CLAUDE.md", "CLAUDE.local.md")
VAULT = ".obsidian"
_NOTE_FIELDS = frozenset({"permalink", "okf_version", "type"})
_WIKI_LINK = re.compile(r"\[\[([^\[\]|#\n]{1,255})(?:[|#][^\[\]\n]*)?\]\]")
_LINK = re.compile(r"\]\(<?([^()<>\s#?]{1,1024}\.md)(?:#[^()\s]*)?>?\)")
_POINTER = re.compile(r"[-*+]\s+\[[^\]\n]*\]\(([^)\n]+)\)")
_LOOSE_FIELD = re.compile(r"^[ \t]*(name|description|type):[ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE)
_STEP_INTO = ("memory", "projects", ".claude")
AGENT_MEMORY = ("agent-memory", "agent-memory-local")


def memory_file(data: bytes, *, path: str) -> Parsed:
    """A file of a memory directory: the key is the path below ``/memories``, the content the text."""
    text = text_in(data, printed(path))
    if isinstance(text, Skipped):
        return Parsed(skipped=(text,))
    return checked_document(Document(path, text, where=path))


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
        return checked_document(Document(_key(place, place.name), text, agent=_agent(place), where=path))
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
    return checked_document(
        Document(key, content, agent=_agent(place), tags=tag(kind), links=links or None, where=str(place))
    )


def _agent(place: PurePosixPath) -> str | None:
    """The subagent whose memory the file is in."""
    steps = [step for step in place.parts[:-1] if step != ".claude"]
    return steps[1] if steps[:1] and steps[0] in AGENT_MEMORY and len(steps) > 1 else None


def _key(place: PurePosixPath, name: str) -> str:
    """``name`` below the folders that distinguish one project's memory from another's."""
    steps = [step for step in place.parent.parts if step not in _STEP_INTO]
    return "/".join([*steps, name])


def _only_points(text: str, *, folder: PurePosixPath, present: frozenset[str]) -> bool:
    """Whether all lines but headings point at files that are there, and at least one does."""
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    targets = [_POINTER.match(line) for line in lines]
    paths = [_target(target[1], folder=folder) for target in targets if target]
    return len(lines) == len(paths) > 0 and all(not present.isdisjoint((path, f"{path}/index.md")) for path in paths)


def tag(kind: object) -> tuple[str, ...]:
    """The name of a kind as the only tag."""
    return (kind.strip(),) if isinstance(kind, str) and kind.strip() else ()


def checked_document(document: Document) -> Parsed:
    """The document, or why it cannot be an entry."""
    problem = key_problem(document.key) or ("this is not text: it holds a NUL" if "\0" in document.content else None)
    return Parsed(skipped=(Skipped(printed(document.where), problem),)) if problem else Parsed((document,))


def notes(files: Iterable[SourceFile]) -> Parsed:
    """The notes in a folder of Markdown: the key is the path without ``.md``, the content the whole text.

    The text keeps its frontmatter, so nothing of it is lost; its ``tags`` and ``type`` become tags as well. Links to
    other notes become links: ``[[names]]`` by path, file name, title or permalink, and Markdown links by path.
    """
    found, skipped = dict[str, tuple[str, Mapping[str, Any]]](), list[Skipped]()
    for file in files:
        text = text_in(file.data, printed(file.path))
        if isinstance(text, Skipped):
            skipped.append(text)
        else:
            fields = fields_in(split(text)[0], where=printed(file.path))
            found[file.path] = text, {} if isinstance(fields, Skipped) else fields
    keys = {path: path.removesuffix(SUFFIX) for path in found}
    named = _named(found, keys)
    parts = [_note(path, *found[path], keys=keys, named=named) for path in found]
    return as_one([*parts, Parsed(skipped=tuple(skipped))])


def is_note(fields: Mapping[str, Any]) -> bool:
    """Whether a frontmatter is one of basic-memory or of the Open Knowledge Format."""
    return not _NOTE_FIELDS.isdisjoint(fields)


def _named(found: Mapping[str, tuple[str, Mapping[str, Any]]], keys: Mapping[str, str]) -> dict[str, str]:
    """The key that a name in ``[[...]]`` stands for; a name of several notes stands for none of them."""
    names = Counter[tuple[str, str]]()
    for path, (_, fields) in found.items():
        aliases = fields.get("aliases")
        own = [keys[path], PurePosixPath(keys[path]).name, fields.get("title"), fields.get("permalink")]
        own += aliases if isinstance(aliases, list) else [aliases]
        names.update({(name.casefold(), keys[path]) for name in own if isinstance(name, str)})
    often = Counter(name for name, _ in names)
    return {name: key for name, key in names if often[name] == 1} | {key.casefold(): key for key in keys.values()}


def _note(
    path: str, text: str, fields: Mapping[str, Any], *, keys: Mapping[str, str], named: Mapping[str, str]
) -> Parsed:
    place = PurePosixPath(path)
    if place.name == "index.md" and _only_points(split(text)[1], folder=place.parent, present=frozenset(keys)):
        return Parsed(skipped=(Skipped(printed(path), "an index of notes, which are imported themselves"),))
    linked = [named.get(name.strip().casefold()) for name in _WIKI_LINK.findall(text)]
    linked += [keys.get(_target(link, folder=place.parent)) for link in _LINK.findall(text)]
    links = tuple(dict.fromkeys(key for key in linked if key and key != keys[path]))
    written = fields.get("tags")
    tags = written.split(",") if isinstance(written, str) else written if isinstance(written, list) else []
    kind = fields.get("type")
    kept, lost = valid_tags([*tags, *([kind] if kind != "note" else [])])
    parsed = checked_document(Document(keys[path], text, tags=kept, links=links[:MAX_LINKS] or None, where=path))
    if lost or len(links) > MAX_LINKS:
        what = f"{lost} tags and {max(0, len(links) - MAX_LINKS)} links were left out: an entry takes {MAX_TAGS} each"
        return Parsed(parsed.documents, (*parsed.skipped, Skipped(printed(path), what)))
    return parsed


def _target(link: str, *, folder: PurePosixPath) -> str:
    """The path of a linked file; one that starts with a slash is relative to the bundle, as in OKF."""
    path = unquote(link)
    return posixpath.normpath(path.lstrip("/") if path.startswith("/") else str(folder / path))


def valid_tags(tags: Iterable[object]) -> tuple[tuple[str, ...], int]:
    """The tags that an entry can have, and how many were left out."""
    given = [tag for tag in tags if tag not in (None, "")]
    texts = dict.fromkeys(str(tag).strip().removeprefix("#") for tag in given if isinstance(tag, (str, int)))
    good = [text for text in texts if text.isprintable() and 1 <= len(text.encode()) <= MAX_TAG_BYTES][:MAX_TAGS]
    return tuple(good), len(texts) - len(good) + sum(not isinstance(tag, (str, int)) for tag in given)
