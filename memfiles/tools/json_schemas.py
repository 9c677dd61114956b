"""JSON Schemas (draft 2020-12) of the workflow, the records and the tools.

They are generated from the models and tool definitions that do the checking, so that an editor and the loader agree.
``python -m memfiles.tools.json_schemas`` writes them to ``schemas/``, where they are checked in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memfiles.records.entry_codec import record_schemas
from memfiles.records.keys import NAME_PATTERN, UID_PATTERN
from memfiles.records.record import HIDDEN
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.profiles import offered
from memfiles.workflow.declared import json_schema
from memfiles.workflow.fields import AGENT_NAME_MAX, MAX_SIZE_BYTES, TOOL_NAMES
from memfiles.workflow.older_workflow import FILE_TYPE, SETTINGS_KEY
from memfiles.workflow.workflow import Workflow

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_NAMED_BY_AUTHOR = frozenset({"properties", "patternProperties", "$defs"})


def workflow_schema() -> dict[str, Any]:
    """The schema of a workflow of either shape; other keys belong to the workflow engine and may hold anything."""
    whole = json_schema(Workflow)
    ours = {key: whole["properties"][key] for key in ("name", "memory", "agents")}
    ours["name"] = {**ours["name"], "description": "The name of the workflow; the file name by default."}
    del ours["name"]["default"]
    ours["agents"]["propertyNames"] = {"minLength": 1, "maxLength": AGENT_NAME_MAX}
    older = {"OlderMemory": _older_memory(), "OlderMemoryFile": _older_memory_file()}
    return _document(
        title="memfiles workflow",
        description="Declares the memory files of a workflow and which agent may read or change them.",
        schema={
            "type": "object",
            "required": ["memory"],
            "properties": {key: {"description": said["description"]} for key, said in ours.items()},
            "if": {"properties": {"memory": {"type": "array"}}, "required": ["memory"]},
            "then": {"properties": {"memory": {"$ref": "#/$defs/OlderMemory"}, SETTINGS_KEY: _older_settings()}},
            "else": {"properties": ours},
            "$defs": {**whole["$defs"], **older},
        },
    )


def record_schema() -> dict[str, Any]:
    """The schema of a record on disk: a memory file, an entry, or the tombstone of a forgotten entry."""
    parts, kinds = record_schemas(), ("File", "Entry", "Mark")
    for name in kinds:
        required = [field for field in parts[name]["required"] if field not in ("format", "type")]
        parts[name]["required"] = ["format", "type", *required]
    parts["Entry"]["description"] = "One entry: text that an agent saved under a key."
    return _document(
        title="memfiles record",
        description="A record on disk. Its history is ordered from the oldest kept change to the newest.",
        schema={"oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds], "$defs": parts},
    )


def tools_schema() -> dict[str, Any]:
    """The schema of a tool call, ``{"name": ..., "arguments": {...}}``, for any files and any naming profile."""
    tools: dict[str, list[ToolDefinition]] = {}
    any_file: dict[str, Any] = {"readable": ["any"], "writable": ["any"]}
    for tool in [tool for names in TOOL_NAMES for tool in offered(names, **any_file, forgets=True)]:
        if all(tool.parameters != other.parameters for other in tools.setdefault(tool.name, [])):
            tools[tool.name].append(tool)
    calls = [{"properties": {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/{name}"}}} for name in tools]
    return _document(
        title="memfiles tool call",
        description="A call of one of the tools that memfiles offers to a model, and its arguments.",
        schema={
            "type": "object",
            "required": ["name", "arguments"],
            "properties": {
                "name": {"type": "string", "enum": list(tools), "description": "The name of the tool."},
                "arguments": {"type": "object", "description": "The arguments of the call."},
            },
            "additionalProperties": False,
            "oneOf": calls,
            "$defs": {name: _of_any_profile(found) for name, found in tools.items()},
        },
    )


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "record": record_schema,
    "tools": tools_schema,
    "workflow": workflow_schema,
}


def as_text(schema: dict[str, Any]) -> str:
    """The text of a schema file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write(directory: Path) -> list[Path]:
    """Write every schema to ``directory`` as ``<name>.schema.json``; returns the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = {directory / f"{name}.schema.json": make for name, make in SCHEMAS.items()}
    for path, make in paths.items():
        path.write_text(as_text(make()), encoding="utf-8")
    return list(paths)


def _document(*, title: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A complete schema document around a plain schema, equal to what its JSON is read back as (no tuples)."""
    plain = {key: value for key, value in _bare_schema(schema).items() if key not in ("title", "description")}
    plain = json.loads(json.dumps(plain))
    return {"$schema": DRAFT, "title": title, "description": description, **plain}


def _bare_schema(schema: Any) -> Any:
    """The schema without titles and null defaults, which carry no information, and with one-line descriptions."""
    if isinstance(schema, list):
        return [_bare_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED_BY_AUTHOR:
            plain[key] = {
                name: _bare_schema(it) for name, it in value.items() if not isinstance(it, dict) or HIDDEN not in it
            }
        elif key == "description":
            plain[key] = " ".join(value.split("\n\n")[0].replace("``", "").split())
        elif key == "pattern":
            plain[key] = value.replace(r"\Z", "$")  # Python's sign for the very end
        elif key != "title" and not (key == "default" and value is None):
            plain[key] = value if key in ("default", "enum", "const", "examples") else _bare_schema(value)
    if "patternProperties" in plain:
        plain.setdefault("additionalProperties", False)
    return plain


def _older_memory() -> dict[str, Any]:
    """The ``memory`` list of the older shape; items of other types may hold anything."""
    return {
        "type": "array",
        "description": "The memory in the older shape: a list; items of other types are ignored.",
        "items": {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"type": "string", "description": f"{FILE_TYPE} for a memory file."}},
            "if": {"properties": {"type": {"const": FILE_TYPE}}},
            "then": {"$ref": "#/$defs/OlderMemoryFile"},
        },
    }


def _older_settings() -> dict[str, Any]:
    return {
        "$ref": "#/$defs/MemorySpec",
        "description": "What a newer workflow says under memory, without the files, which the memory list declares.",
        "properties": {"files": False},
    }


def _older_memory_file() -> dict[str, Any]:
    texts = {
        "label": f"Its name if it matches {NAME_PATTERN}; otherwise the id is the name.",
        "description": "The purpose of the file; the model sees it.",
        "content": "The content of the file when it is first created.",
    }
    return {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "string", "pattern": UID_PATTERN, "description": "The stable identity of the file."},
            **{name: {"type": ["string", "null"], "description": said} for name, said in texts.items()},
            "maxSizeBytes": {
                "type": ["integer", "null"],
                "minimum": 0,
                "maximum": MAX_SIZE_BYTES,
                "description": "The cap on the content, in UTF-8 bytes; without it the file has no cap of its own.",
            },
        },
    }


def _of_any_profile(tools: Sequence[ToolDefinition]) -> dict[str, Any]:
    """The arguments of a tool, which may differ between naming profiles."""
    said = [{"description": tool.description, **_of_any_file(tool.parameters)} for tool in tools]
    return said[0] if len(said) == 1 else {"anyOf": said}


def _of_any_file(parameters: dict[str, Any]) -> dict[str, Any]:
    """A tool's parameters without the enum of file names, which differ between workflows."""
    properties = dict(parameters["properties"])
    if "file" in properties:
        file = {key: value for key, value in properties["file"].items() if key != "enum"}
        properties["file"] = {**file, "pattern": NAME_PATTERN}
    return {**parameters, "properties": properties}


if __name__ == "__main__":
    for written in write(Path(*sys.argv[1:2] or ["schemas"])):
        print(written)
