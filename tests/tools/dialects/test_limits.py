"""What is sent as strict is no more than the vendors take, however many files and tools there are."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from memfiles.tools.definitions import ToolDefinition, file_tools
from memfiles.tools.dialects import (
    ENUM_VALUES,
    LONG_ENUM,
    LONG_ENUM_CHARACTERS,
    OPTIONAL_PARAMETERS,
    STRICT_TOOLS,
    render,
    strict_together,
    within_enum_limits,
)
from memfiles.tools.entry_definitions import entry_tools
from memfiles.tools.profiles import offered
from memfiles.workflow.fields import TOOL_NAMES, ToolNames

FILE_TOOLS = file_tools(readable=["customer-notes", "playbook"], writable=["customer-notes"])
SHARING = ["anthropic", "bedrock"]


def schema_of(shape: dict[str, Any]) -> dict[str, Any]:
    """The schema of the arguments, wherever a vendor has it."""
    function = shape.get("function") or shape.get("toolSpec") or shape
    found: dict[str, Any] = next(
        function[place] for place in ("parameters", "input_schema", "inputSchema") if place in function
    )
    inner: dict[str, Any] = found.get("json", found)
    return inner


def is_strict(shape: dict[str, Any]) -> bool:
    return bool((shape.get("function") or shape.get("toolSpec") or shape).get("strict"))


def optional(schema: dict[str, Any]) -> int:
    return len(schema["properties"]) - len(schema["required"])


def tool_with(optional: int, *, name: str) -> ToolDefinition:
    """A tool with one parameter that is required and so many that are not."""
    properties = {f"p{number}": {"type": "string", "description": "x"} for number in range(optional + 1)}
    return replace(FILE_TOOLS[0], name=name, parameters={"properties": properties, "required": ["p0"]})


def enum_of(count: int, *, length: int) -> dict[str, Any]:
    """A schema with an enum of so many names of that length, and a small one."""
    names = [str(number).rjust(length, "x") for number in range(count)]
    file = {"type": "string", "description": "The file.", "enum": names}
    kind = {"type": "string", "description": "The kind.", "enum": ["a", "b"]}
    return {"type": "object", "properties": {"file": file, "kind": kind}, "required": ["file", "kind"]}


@pytest.mark.parametrize("tool_names", TOOL_NAMES)
@pytest.mark.parametrize("dialect", SHARING)
def test_a_strict_request_stays_within_what_its_vendor_takes(dialect: str, tool_names: ToolNames) -> None:
    """With every tool there is, under each set of names: counted, and without a union."""
    shapes = render(
        offered(tool_names, readable=["customer-notes", "playbook"], writable=["customer-notes"]), dialect, strict=True
    )
    strict = [schema_of(shape) for shape in shapes if is_strict(shape)]

    assert STRICT_TOOLS >= len(strict) >= len(shapes) - 1
    assert sum(map(optional, strict)) <= OPTIONAL_PARAMETERS
    assert [] == [
        inner for schema in strict for inner in schema["properties"].values() if not isinstance(inner["type"], str)
    ]


@pytest.mark.parametrize("dialect", SHARING)
def test_the_tool_that_leaves_most_open_is_given_up(dialect: str) -> None:
    """It is sent all the same, with the bounds that a strict schema may not have."""
    shapes = render([*FILE_TOOLS, *entry_tools()], dialect, strict=True)
    relaxed = [shape for shape in shapes if not is_strict(shape)]

    assert render(entry_tools()[-1:], dialect) == relaxed
    assert "memory_update" == entry_tools()[-1].name


def test_of_equals_the_last_is_given_up() -> None:
    """So the same tools always give up the same."""
    tools = [tool_with(9, name=f"tool_{number}") for number in range(4)]

    assert {"tool_0", "tool_1"} == strict_together(tools)
    assert {"tool_0", "small"} == strict_together([*tools[:1], tool_with(15, name="small")])
    assert {"tool_0"} == strict_together([*tools[:1], tool_with(16, name="large")])


def test_no_more_tools_are_strict_than_a_request_may_have() -> None:
    """Also where none of them leaves anything open."""
    tools = [tool_with(0, name=f"tool_{number}") for number in range(STRICT_TOOLS + 2)]

    assert {f"tool_{number}" for number in range(STRICT_TOOLS)} == strict_together(tools)


@pytest.mark.parametrize(
    ("count", "length", "is_kept"),
    [
        (LONG_ENUM, 64, True),
        (LONG_ENUM + 1, 64, False),
        (LONG_ENUM_CHARACTERS // 30, 30, True),
        (LONG_ENUM_CHARACTERS // 30 + 1, 30, False),
        (ENUM_VALUES - 2, 4, True),
        (ENUM_VALUES - 1, 4, False),
    ],
)
def test_an_enum_that_is_too_large_is_left_out(count: int, length: int, is_kept: bool) -> None:
    """The description then says where the names are; a small enum beside it stays."""
    before = enum_of(count, length=length)
    after = within_enum_limits(before)
    told = "The file." if is_kept else "The file. Use one of the names in the index card."

    assert (is_kept, told) == ("enum" in after["properties"]["file"], after["properties"]["file"]["description"])
    assert before["properties"]["kind"] == after["properties"]["kind"]
    assert enum_of(count, length=length) == before


@pytest.mark.parametrize("dialect", ["openai", "openai-chat", *SHARING])
def test_thousands_of_files_are_named_by_no_strict_schema(dialect: str) -> None:
    """And still are where a schema is not strict."""
    names = [f"file-{number}" for number in range(3000)]
    many = file_tools(readable=names, writable=names)
    call = {"file": "file-7", "content": "x"}

    for strict, holds in ((True, False), (False, True)):
        shapes = render(many, dialect, strict=strict)
        assert [holds] * 3 == ["enum" in schema_of(shape)["properties"]["file"] for shape in shapes]
        assert Draft202012Validator(schema_of(shapes[1])).is_valid(call)
