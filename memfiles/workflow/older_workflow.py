"""Older workflow shape: read as it is and never written, with an optional block of our own next to it.

Its ``memory`` is a list of ``{type: MemoryFile, id, label, description, content, maxSizeBytes}`` among items of other
types. An agent is any node whose ``arguments`` hold ``memoryRefs``, a list of ``{id, mode}``. Other keys belong to the
workflow engine. A null counts as a missing key. Without ``maxSizeBytes`` a file has no cap but the limit of a file; 0
is an empty file that cannot grow; and declared content may be over its cap.

A YAML document cannot have the key ``memory`` twice. So what a newer workflow says under ``memory``, except its files,
stands here under the top-level key ``memfiles``: where the records lie, their mirror, levels, entries and so on.

The shape leaves some points open. A file is named by its label if that is a valid and unique name, else by its id. An
agent is named by its node's id, else name, else label, else key or path. Modes may be in capitals. References to items
of other types are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from memfiles.errors import InvalidArgument
from memfiles.records.keys import NAME_MAX, check_name
from memfiles.workflow.fields import MAX_SIZE_BYTES
from memfiles.workflow.problems import ParsedWorkflow, Problem, Where, in_quotes, path_text

FILE_TYPE = "MemoryFile"
SETTINGS_KEY = "memfiles"
_RENAMED = {"uid": "id", "description": "description", "content": "content", "max_size_bytes": "maxSizeBytes"}


def is_older(document: Mapping[str, Any]) -> bool:
    """Whether a document is in the older shape."""
    return isinstance(document.get("memory"), list)


def read_older(document: Mapping[str, Any]) -> ParsedWorkflow:
    """An older document in the shape of the models, with the original positions."""
    files, settings = _read_files(document["memory"]), _read_settings(document.get(SETTINGS_KEY))
    agents = _read_agents(document, ignored=_ids_of_others(document["memory"]))
    read = {
        **({"name": document["name"]} if isinstance(document.get("name"), str) else {}),
        "memory": {**settings.document, "files": files.document},
        "agents": agents.document,
        "extra": {key: value for key, value in document.items() if key not in ("name", "memory", SETTINGS_KEY)},
    }
    parts = (settings, files, agents)
    origins = {where: origin for part in parts for where, origin in part.origins.items()}
    return ParsedWorkflow(read, [problem for part in parts for problem in part.problems], origins)


def _read_settings(settings: Any) -> ParsedWorkflow:
    """Our own block; the files are declared in the memory list."""
    if settings is None or not isinstance(settings, dict):
        what = "this must be a mapping, such as `memfiles: {directory: .memory}`"
        return ParsedWorkflow({}, [] if settings is None else [Problem((SETTINGS_KEY,), what)])
    known = {key: value for key, value in settings.items() if key != "files"}
    part = ParsedWorkflow(known, origins={("memory", key): (SETTINGS_KEY, key) for key in known})
    if "files" in settings:
        what = "the memory list declares the files; move these there, or use the newer shape for all of them"
        part.problems.append(Problem((SETTINGS_KEY, "files"), what, at_key=True))
    return part


def _read_files(items: list[Any]) -> ParsedWorkflow:
    part = ParsedWorkflow([])
    ours = [(index, item) for index, item in enumerate(items) if _text_in(item, "type") == FILE_TYPE]
    names = _names([item for _, item in ours])
    for (index, item), name in zip(ours, names, strict=True):
        where: Where = ("memory", "files", len(part.document))
        origin: Where = ("memory", index)
        part.origins[where] = origin
        part.origins.update({(*where, new): (*origin, old) for new, old in _RENAMED.items()})
        part.origins[*where, "name"] = (*origin, "label")
        known = {new: item[old] for new, old in _RENAMED.items() if item.get(old) is not None}
        part.document.append({"max_size_bytes": MAX_SIZE_BYTES, **known, "name": name})
    untyped = "this item has no type; write `type: MemoryFile`, or declare `memory: {files: [...]}`"
    part.problems.extend(
        Problem(("memory", at), untyped) for at, item in enumerate(items) if _text_in(item, "type") is None
    )
    return part


def _names(files: list[Mapping[str, Any]]) -> list[str]:
    """A name for each file: its label if that is a valid and unique name, else its id."""
    labels = Counter(file["label"] for file in files if isinstance(file.get("label"), str))
    ids = {file["id"]: position for position, file in enumerate(files) if isinstance(file.get("id"), str)}
    names: list[str] = []
    for position, file in enumerate(files):
        label, uid = file.get("label"), file.get("id")
        if _is_name(label) and labels[label] == 1 and ids.get(label, position) == position:
            names.append(label)
        else:
            name = uid[:NAME_MAX] if isinstance(uid, str) else ""
            names.append(name if _is_name(name) else f"file-{position + 1}")  # such an id is refused as a uid
    return names


def _read_agents(document: Mapping[str, Any], *, ignored: frozenset[str]) -> ParsedWorkflow:
    part = ParsedWorkflow({})
    for where, node in _nodes(document):
        name, at = _agent_name(node, where), (*where, "arguments", "memoryRefs")
        if name in part.document:
            why = f"another node has the same name{in_quotes(name)}; give each its own id"
            part.problems.append(Problem(where, why))
            continue
        refs = node["arguments"]["memoryRefs"]
        part.origins["agents", name] = where
        part.origins["agents", name, "memory"] = at
        if not isinstance(refs, list):
            part.document[name] = {"memory": refs}
            continue
        kept = [(index, ref) for index, ref in enumerate(refs) if _text_in(ref, "id") not in ignored]
        part.origins.update({("agents", name, "memory", new): (*at, old) for new, (old, _) in enumerate(kept)})
        part.document[name] = {"memory": [_ref(ref) for _, ref in kept]}
    return part


def _nodes(document: Mapping[str, Any]) -> Iterator[tuple[Where, Mapping[str, Any]]]:
    """Every mapping outside ``memory`` and our own block whose ``arguments`` hold ``memoryRefs``, in document order."""
    waiting: list[tuple[Where, Any]] = [
        ((), {key: value for key, value in document.items() if key not in ("memory", SETTINGS_KEY)})
    ]
    while waiting:
        where, value = waiting.pop()
        arguments = value.get("arguments") if isinstance(value, dict) else None
        if isinstance(arguments, dict) and arguments.get("memoryRefs") is not None:
            yield where, value
        steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting.extend(reversed([((*where, step), below) for step, below in steps]))


def _agent_name(node: Mapping[str, Any], where: Where) -> str:
    named = (text for key in ("id", "name", "label") if (text := _text_in(node, key)) and text.strip())
    last = where[-1] if where and isinstance(where[-1], str) else path_text(where) or "agent"
    return next(named, None) or last


def _ref(ref: Any) -> Any:
    """A reference with its known keys, and its mode in lower case."""
    if not isinstance(ref, dict):
        return ref
    known = {key: ref[key] for key in ("id", "mode") if ref.get(key) is not None}
    if isinstance(known.get("mode"), str) and known["mode"].lower() in ("r", "rw"):
        known["mode"] = known["mode"].lower()
    return known


def _ids_of_others(items: list[Any]) -> frozenset[str]:
    """Ids that only items of other types have; references to them are ignored."""
    ids: dict[bool, set[str]] = {True: set(), False: set()}
    for item in items:
        if _text_in(item, "type") is not None and _text_in(item, "id") is not None:
            ids[item["type"] == FILE_TYPE].add(item["id"])
    return frozenset(ids[False] - ids[True])


def _text_in(item: Any, key: str) -> str | None:
    """The text under a key of a mapping; None if there is none."""
    text = item.get(key) if isinstance(item, dict) else None
    return text if isinstance(text, str) else None


def _is_name(text: object) -> TypeGuard[str]:
    if not isinstance(text, str):
        return False
    try:
        return bool(check_name(text))
    except InvalidArgument:
        return False
