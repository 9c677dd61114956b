"""JSON exports of other programs: memories become entries; a conversation alone does not.

The rule this file guards: whatever is left out is counted and reported with its place, and no value is quoted. A value
is recognised by its shape and not by the name of its file, as the layouts changed several times.

Sources of the shapes: the reference memory server of the Model Context Protocol (a knowledge graph, one JSON object per
line); mem0 2.2 (``get_all`` of its library and its platform); the exports of Claude and ChatGPT as ``README.md`` in
``tests/entries/transfer/samples`` lists them, because neither vendor documents its export.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from memfiles.entries.transfer.document import Document, Parsed, Skipped, as_one, is_time, key_problem, limited, printed
from memfiles.entries.transfer.folders import SourceFile
from memfiles.entries.transfer.formats import Format, JsonText, line_objects
from memfiles.entries.transfer.notes import checked_document, tag, valid_tags

_CHUNK, _VALUE_MAX = 1 << 20, 1 << 26  # bytes, characters; a value takes up to 20 times as much memory as its text
_MEM0_FIELDS = frozenset(
    {"id", "memory", "agent_id", "user_id", "created_at", "updated_at", "expiration_date", "categories", "metadata"}
)
_CLAUDE_MEMORY = frozenset({"conversations_memory", "project_memories", "memory_files"})
_CLAUDE_PROJECT = frozenset({"prompt_template", "docs"})
_FENCED = re.compile(r"```(?:[a-z]*\n)?(.*?)```", re.DOTALL)
_LISTED = re.compile(r"^\s*\d{1,6}\.\s+(?:\[(\d{4}-\d\d-\d\d)\]\.?\s*)?", re.MULTILINE)
_MEMORY_FILES = ("memory.json", "memories.json")


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
    read = as_one(_with_relations(entity, relations) for entity in entities)
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
    return Document(name, "\n".join(texts), tags=tag(found.get("entityType")), where=at)


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


def values(data: bytes, *, where: str) -> Iterator[Any]:
    """The items of a JSON array, or the values in a file, one by one; last a ``Skipped`` if the rest is not JSON."""
    try:
        yield from _decoded(data)
    except UnicodeDecodeError:
        yield Skipped(where, "it is not UTF-8 text")
    except json.JSONDecodeError as error:
        yield Skipped(where, f"this is not JSON: {error.msg}")
    except RecursionError:
        yield Skipped(where, "it is nested too deeply")
    except ValueError as error:  # a number of thousands of digits
        yield Skipped(where, f"it cannot be read: {error}")


def _decoded(data: bytes) -> Iterator[Any]:
    """See ``values``: an export of years is one array of some hundred MiB, so one item is decoded at a time."""
    text = JsonText(data, piece=_CHUNK, most=_VALUE_MAX)
    if text.peek() == "[":
        text.at += 1
        while (character := text.peek()) != "]":
            if not character:
                raise json.JSONDecodeError("it ends too early", "", 0)
            yield text.value(before=",]")
            if (character := text.peek()) == ",":
                text.at += 1
            elif character != "]":
                raise json.JSONDecodeError("a comma is missing", "", 0)
        text.at += 1
    while text.peek():
        yield text.value()


def _all_values(files: Iterable[SourceFile]) -> Iterator[tuple[SourceFile, int, Any]]:
    """The values of all files, numbered in each; ``InvalidArgument`` for more than a million."""
    found = ((file, enumerate(values(file.data, where=printed(file.path)), 1)) for file in files)
    return limited((file, number, value) for file, numbered in found for number, value in numbered)


def format_of(value: Any) -> Format | None:
    """The program that exported the first value of a file, None if that is not certain."""
    if not isinstance(value, dict):
        return None
    results = value.get("results")
    if isinstance(results, list) and results and isinstance(results[0], dict):
        value = results[0]
    if isinstance(value.get("memory"), str) and isinstance(value.get("id"), str):
        return "mem0"
    if isinstance(value.get("mapping"), dict):
        return "chatgpt"
    is_claude = "chat_messages" in value or not _CLAUDE_MEMORY.isdisjoint(value) or value.keys() >= _CLAUDE_PROJECT
    return "claude" if is_claude else None


def mem0(files: Iterable[SourceFile]) -> Parsed:
    """The memories of mem0: the key is ``mem0/`` and the id, categories and metadata become tags."""
    parts, left_out, numbers = list[Parsed](), Counter[str](), Counter[str]()
    for file, item in limited(
        (file, item) for file, _, value in _all_values(files) for item in _listed_in(value, "results")
    ):
        numbers[file.path] += 1
        parts.append(_mem0_memory(item, where=f"{printed(file.path)}:{numbers[file.path]}"))
        if isinstance(item, dict):
            left_out.update(name for name, value in item.items() if name not in _MEM0_FIELDS and value)
    fields = ", ".join(f"{printed(name)} ({count})" for name, count in sorted(left_out.items())[:20])
    skipped = [Skipped("mem0", f"fields without a place in an entry were left out: {fields}")] if left_out else []
    return as_one([*parts, Parsed(skipped=tuple(skipped))])


def _listed_in(value: Any, field: str) -> list[Any]:
    """The list in this field of an object, else the value alone."""
    listed = value.get(field) if isinstance(value, dict) else None
    return listed if isinstance(listed, list) else [value]


def _mem0_memory(item: Any, *, where: str) -> Parsed:
    if isinstance(item, Skipped):
        return Parsed(skipped=(item,))
    if not isinstance(item, dict) or not _text(item.get("memory")):
        return Parsed(skipped=(Skipped(where, "this is not a memory: it has no text under memory"),))
    metadata, categories = item.get("metadata"), item.get("categories")
    named = [f"{name}: {value}" for name, value in metadata.items()] if isinstance(metadata, dict) else []
    tags, lost = valid_tags([*(categories if isinstance(categories, list) else []), *named])
    created, updated = _moment(item.get("created_at")), _moment(item.get("updated_at"))
    document = Document(
        f"mem0/{_text(item.get('id')) or _hash(item['memory'])}",
        item["memory"],
        tags=tags,
        agent=_text(item.get("agent_id")) or None,
        user=_text(item.get("user_id")) or None,
        created=created,
        updated=updated or created,
        expires_at=_moment(item.get("expiration_date")),
        where=where,
    )
    why = f"{lost} of its categories and metadata cannot be tags; the rest was read"
    return as_one([checked_document(document), Parsed(skipped=(Skipped(where, why),) if lost else ())])


def claude(files: Iterable[SourceFile]) -> Parsed:
    """The memories of Claude, and the instructions and documents of its projects under keys with the project's name."""
    parts, others = list[Parsed](), Counter[str]()
    memories, projects = list[tuple[str, dict[str, Any]]](), list[tuple[str, dict[str, Any]]]()
    for file, _, value in _all_values(files):
        where = printed(file.path)
        if isinstance(value, Skipped):
            parts.append(Parsed(skipped=(value,)))
        elif not isinstance(value, dict):
            others["values that are not objects"] += 1
        elif "chat_messages" in value:
            others["conversations, which are not memories"] += 1
        elif not _CLAUDE_MEMORY.isdisjoint(value):
            memories.append((where, value))
        elif not _CLAUDE_PROJECT.isdisjoint(value):
            projects.append((where, value))
        else:
            others["other records, such as the account's"] += 1
    names = _project_names([project for _, project in projects])
    parts += [_claude_memory(value, names=names, where=where) for where, value in memories]
    parts += [_claude_project(value, names=names, where=where) for where, value in projects]
    return as_one([*parts, _skipped_counts("Claude", others)])


def _skipped_counts(who: str, others: Counter[str]) -> Parsed:
    return Parsed(skipped=tuple(Skipped(who, f"{count} {what}") for what, count in others.items()))


def _project_names(projects: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """A name for each project's uuid; of two with the same name the later one has its uuid added."""
    names, known = dict[str, str](), set[str]()
    for project in projects:
        uuid, name = _text(project.get("uuid")), _text(project.get("name")).strip().replace("/", "-")
        if uuid not in names:
            name = name if name and name.isprintable() else uuid or "unnamed"
            names[uuid] = f"{name} ({uuid[:8]})" if name in known else name
            known.add(name)
    return names


def _claude_memory(found: Mapping[str, Any], *, names: Mapping[str, str], where: str) -> Parsed:
    of_projects, files = found.get("project_memories") or {}, found.get("memory_files") or []
    texts: list[tuple[str, Any, Any]] = [("claude/memory", found.get("conversations_memory"), None)]
    skipped = list[Skipped]()
    if isinstance(of_projects, dict):
        texts += [
            (f"claude/projects/{names.get(uuid, uuid)}/memory", it, None) for uuid, it in limited(of_projects.items())
        ]
    else:
        skipped.append(Skipped(where, "project_memories must be an object of texts"))
    for number, file in enumerate(limited(files if isinstance(files, list) else [files])):
        path = _text(file.get("path")) if isinstance(file, dict) else ""
        if not path:
            skipped.append(Skipped(f"{where}:memory_files[{number}]", "this memory file has no path"))
            continue
        steps = [names.get(step, step) for step in path.strip("/").split("/")]
        texts.append((f"claude/{'/'.join(steps)}", file.get("content"), file.get("updated_at")))
    parts = [_kept(key, text, where=where, updated=_moment(at)) for key, text, at in texts]
    return as_one([*parts, Parsed(skipped=tuple(skipped))])


def _claude_project(found: Mapping[str, Any], *, names: Mapping[str, str], where: str) -> Parsed:
    home = f"claude/projects/{names[_text(found.get('uuid'))]}"
    if found.get("is_starter_project") is True:
        return Parsed(skipped=(Skipped(where, "a project that came with Claude"),))
    docs = found.get("docs") or []
    parts = [_kept(f"{home}/{name}", found.get(field), where=where)
             for name, field in (("instructions", "prompt_template"), ("description", "description"))]  # fmt: skip
    for number, doc in enumerate(limited(docs if isinstance(docs, list) else [docs])):
        name = _text(doc.get("filename")) if isinstance(doc, dict) else ""
        if name:
            at = _moment(doc.get("created_at"))
            parts.append(_kept(f"{home}/{name}", doc.get("content"), where=where, updated=at))
        else:
            parts.append(Parsed(skipped=(Skipped(f"{where}:docs[{number}]", "this document has no filename"),)))
    return as_one(parts)


def chatgpt(files: Iterable[SourceFile]) -> Parsed:
    """The memories of ChatGPT and its custom instructions.

    Conversations hold both as the model saw them: the newest instructions and the newest list of memories count, and
    memories that were saved after that list.
    """
    parts, others = list[Parsed](), Counter[str]()
    seen = _Seen()
    for file, number, value in _all_values(files):
        where = f"{printed(file.path)}:{number}"
        if isinstance(value, Skipped):
            parts.append(Parsed(skipped=(value,)))
        elif file.path.rpartition("/")[2] in _MEMORY_FILES:
            parts += [_chatgpt_memory(it, where=where) for it in limited(_listed_in(value, "memories"))]
        elif isinstance(value, dict) and isinstance(value.get("mapping"), dict):
            others["conversations, which are not memories"] += 1
            seen.look(value)
        else:
            others["other records, such as the account's"] += 1
    listed, at = seen.newest["model_set_context"]
    parts += [_fact(text, at=moment) for text, moment in _facts(listed)]
    parts += [_fact(text, at=_moment(saved)) for saved, text in seen.saved if saved > at]
    parts += [_kept(f"chatgpt/{name}", seen.newest[field][0], where="ChatGPT") for name, field in _INSTRUCTIONS]
    documents = {it.key: it for part in parts for it in part.documents}  # a memory is often saved and listed
    skipped = tuple(it for part in parts for it in part.skipped)
    return Parsed(tuple(documents.values()), (*skipped, *_skipped_counts("ChatGPT", others).skipped))


_INSTRUCTIONS = (("about-user", "user_profile"), ("instructions", "user_instructions"))
_MESSAGE_DATA = {"user_profile": "about_user_message", "user_instructions": "about_model_message"}


class _Seen:
    """The memory shown by the conversations of an export: the newest of each text, and saved memories with times."""

    def __init__(self) -> None:
        self.newest = dict.fromkeys(("user_profile", "user_instructions", "model_set_context"), ("", -1.0))
        self.saved: list[tuple[float, str]] = []

    def look(self, conversation: Mapping[str, Any]) -> None:
        """Take note of one conversation."""
        begun = _seconds(conversation.get("create_time"))
        changed = _seconds(conversation.get("update_time")) or begun
        for node in conversation["mapping"].values():
            message = node.get("message") if isinstance(node, dict) else None
            content = message.get("content") if isinstance(message, dict) else None
            if not isinstance(message, dict) or not isinstance(content, dict):
                continue
            at = _seconds(message.get("create_time"))
            shown = at or begun or changed  # what is saved later in the conversation is newer
            for field, (_, newest) in self.newest.items():
                if shown > newest and (text := _context(field, message, content)):
                    self.newest[field] = text, shown
            parts = content.get("parts")
            if message.get("recipient") == "bio" and isinstance(parts, list):
                self.saved += [(at or changed, part.strip()) for part in parts if _text(part)]


def _context(field: str, message: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """A text of the context of a conversation; without ChatGPT's own words around it, if it has some."""
    metadata = message.get("metadata")
    data = metadata.get("user_context_message_data") if isinstance(metadata, dict) else None
    plain = _text(data.get(_MESSAGE_DATA.get(field))) if isinstance(data, dict) else ""
    text = _text(content.get(field))
    fenced = _FENCED.search(text) if field in _MESSAGE_DATA else None
    return (plain or (fenced[1] if fenced else text)).strip()


def _facts(listed: str) -> Iterator[tuple[str, str | None]]:
    """The memories in a numbered list, and their days."""
    starts = list(_LISTED.finditer(listed))
    for start, following in zip(starts, [*starts[1:], None], strict=False):
        text = listed[start.end() : following.start() if following else None].strip()
        if text:
            yield text, _moment(start[1])


def _fact(text: str, *, at: str | None = None) -> Parsed:
    return checked_document(Document(f"chatgpt/memory/{_hash(text)}", text, created=at, updated=at, where="ChatGPT"))


def _chatgpt_memory(item: Any, *, where: str) -> Parsed:
    fields = item if isinstance(item, dict) else {"content": item}
    text = next(filter(None, (_text(fields.get(name)) for name in ("content", "memory", "text", "value"))), "")
    if not text or fields.get("enabled") is False:
        return Parsed(skipped=(Skipped(where, "this memory is switched off" if text else "this memory has no text"),))
    at = next(filter(None, (_moment(fields.get(name)) for name in ("updated_at", "created_at", "create_time"))), None)
    return _fact(text.strip(), at=at)


def _kept(key: str, text: Any, *, where: str, updated: str | None = None) -> Parsed:
    """The document of a text, none of a blank one."""
    if text is None or text == "" or (isinstance(text, str) and not text.strip()):
        return Parsed()
    if not isinstance(text, str):
        return Parsed(skipped=(Skipped(where, f"{printed(key)} is not text"),))
    return checked_document(Document(key, text, created=updated, updated=updated, where=where))


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value.strip() else ""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e11 else 0.0


def _moment(value: Any) -> str | None:
    """A timestamp as records have it; None for a value that is not a moment."""
    try:
        if seconds := _seconds(value):
            moment = datetime.fromtimestamp(seconds, UTC)
        else:
            moment = datetime.fromisoformat(value)
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        return None
    written = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return written if is_time(written) else None
