"""Tool definitions in one neutral form, from which every dialect is made, and the tools for memory files.

The rule this file guards: schemas are closed objects without unions, ``$ref``s or titles, and the same files give the
same definitions byte for byte, so that prompt caches keep working.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from memfiles.tools.arguments import AppendMemory, Arguments, EditMemory, ReadMemory
from memfiles.tools.results import READ_OUTPUT, WRITE_OUTPUT
from memfiles.workflow.declared import json_schema
from memfiles.workflow.fields import COMPACT

READ = "read_memory"
APPEND = "append_memory"
EDIT = "edit_memory"


class ToolDefinition(Struct, frozen=True):
    """One tool: its name, when to use it, and the JSON schemas of its arguments and its result.

    ``read_only``: it changes nothing. ``destructive``: it can replace content. ``idempotent``: repeating the same call
    changes nothing more. ``output`` describes the data of a successful result, and its text if ``text`` is a property;
    it is empty if results are not described. ``examples`` are arguments that the schema accepts.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    output: dict[str, Any]
    read_only: bool
    destructive: bool
    idempotent: bool
    examples: tuple[dict[str, Any], ...] = ()


class ToolTemplate(Struct, frozen=True):
    """One operation, whatever its tool is called. The examples that are about a file lack the ``file``."""

    arguments: type[Arguments]
    description: str
    examples: tuple[dict[str, Any], ...]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = True

    def named(self, name: str, *, output: dict[str, Any], files: Sequence[str] = ()) -> ToolDefinition:
        """The tool under this name. A ``file`` argument is limited to ``files``, or left out without any."""
        takes_file = "file" in self.arguments.__struct_fields__
        file = {"file": files[0]} if files else {}
        about_files = [takes_file and "key" not in example for example in self.examples]
        return ToolDefinition(
            name=name,
            description=self.description,
            parameters=parameters_of(self.arguments, files=files),
            output=output,
            read_only=self.read_only,
            destructive=self.destructive,
            idempotent=self.idempotent,
            examples=tuple(
                file | example if is_about_file else example
                for example, is_about_file in zip(self.examples, about_files, strict=True)
                if files or not is_about_file
            ),
        )


_READ = ToolTemplate(
    ReadMemory,
    "Read one of your memory files: text kept from earlier runs. Read a file before you rely on it and before you edit "
    "it. Returns the text exactly as stored; offset and limit return a range of lines.",
    ({}, {"offset": 1, "limit": 50}),
    read_only=True,
)
_APPEND = ToolTemplate(
    AppendMemory,
    "Add something new to the end of one of your memory files, to keep it for later runs. Nothing is added to your "
    "text: end it with a newline. Text over the file's size limit is refused as a whole; the result says how many "
    "bytes are left. Never store passwords, keys or tokens.",
    ({"content": "- Bob moved to the Pro plan.\n"},),
    idempotent=False,
)
_EDIT = ToolTemplate(
    EditMemory,
    "Correct, shorten or remove text in one of your memory files. Read the file first and copy old_string exactly. "
    "Only the first match is replaced; the result says how many there were and at which line. A change over the file's "
    "size limit is refused.",
    (
        {"old_string": "- Bob is on Free.\n", "new_string": "- Bob is on Pro.\n"},
        {"old_string": "- Bob is on Free.\n", "new_string": ""},
    ),
    destructive=True,
    idempotent=False,
)


def file_tools(*, readable: Sequence[str], writable: Sequence[str]) -> list[ToolDefinition]:
    """The tools for memory files of these names; a tool that could be used on none of them is left out."""
    read, write = sorted(readable), sorted(writable)
    reading = [_READ.named(READ, output=READ_OUTPUT, files=read)] if read else []
    writing = {APPEND: _APPEND, EDIT: _EDIT} if write else {}
    return reading + [tool.named(name, output=WRITE_OUTPUT, files=write) for name, tool in writing.items()]


def file_verbs(tool_names: str | None) -> tuple[str, str, str]:
    """The names of the tools that read, add to and edit memory files under a naming profile, or without entries."""
    return ("memory_read", "memory_write", "memory_edit") if tool_names == COMPACT else (READ, APPEND, EDIT)


def parameters_of(model: type[Struct], *, files: Sequence[str] = ()) -> dict[str, Any]:
    """The JSON schema of a tool's arguments; a ``file`` argument is limited to these names, or left out without any."""
    schema = _schema_of(model)
    properties = {name: _bare_property(property_) for name, property_ in schema.get("properties", {}).items()}
    required = list(schema.get("required", []))
    if "file" in properties and files:
        properties["file"]["enum"] = list(files)
    elif properties.pop("file", None):
        required.insert(0, "key")
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@cache
def _schema_of(model: type[Struct]) -> dict[str, Any]:
    """The schema, made once: it takes longer than a call, and each model call may have a session of its own."""
    return json_schema(model)


def _bare_property(schema: dict[str, Any]) -> dict[str, Any]:
    """A property's schema without title, default and the union with null that marks an optional argument."""
    typed = next((part for part in schema.get("anyOf", ()) if part["type"] != "null"), schema)
    kept = {key: said[key] for key, said in (("type", typed), ("description", schema)) if key in said}
    return kept | {key: typed[key] for key in sorted(typed) if key not in {"type", "description", "title", "default"}}
