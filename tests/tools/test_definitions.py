"""Tool definitions are closed, plain schemas over the files that can be used, the same for the same files."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from memfiles.tools.definitions import ToolDefinition, file_tools

NAMES = ["notes", "faq"]


def both() -> list[ToolDefinition]:
    return file_tools(readable=NAMES, writable=["notes"])


def test_readable_and_writable_files_give_three_tools() -> None:
    """Reading, appending and editing, in this order."""

    assert ["read_memory", "append_memory", "edit_memory"] == [tool.name for tool in both()]


def test_the_file_is_one_of_the_names_sorted() -> None:
    """Reading is offered for every file, writing only for those that may be changed."""

    assert [["faq", "notes"], ["notes"], ["notes"]] == [
        tool.parameters["properties"]["file"]["enum"] for tool in both()
    ]


def test_without_a_writable_file_there_is_no_tool_for_writing() -> None:
    """A tool that could only fail is not offered."""

    assert ["read_memory"] == [tool.name for tool in file_tools(readable=NAMES, writable=[])]


def test_without_any_file_there_is_no_tool() -> None:
    """No files, no tools."""

    assert [] == file_tools(readable=[], writable=[])


def test_the_order_of_the_files_changes_nothing() -> None:
    """Prompt caches hold as long as the files are the same."""
    one, other = (file_tools(readable=names, writable=names) for names in (NAMES, NAMES[::-1]))

    assert [json.dumps(tool.parameters) for tool in one] == [json.dumps(tool.parameters) for tool in other]


@pytest.mark.parametrize("tool", both(), ids=lambda tool: tool.name)
def test_schemas_are_valid_closed_and_plain(tool: ToolDefinition) -> None:
    """Objects refuse what they do not name; there is no union, reference, title or default for a vendor to refuse."""
    Draft202012Validator.check_schema(tool.parameters)
    properties = tool.parameters["properties"].values()

    assert ["type", "properties", "required", "additionalProperties"] == list(tool.parameters)
    assert tool.parameters["additionalProperties"] is False
    assert set() == {keyword for part in properties for keyword in part} - {"type", "description", "enum", "minimum"}


@pytest.mark.parametrize("tool", both(), ids=lambda tool: tool.name)
def test_every_tool_and_argument_is_described_and_typed(tool: ToolDefinition) -> None:
    """A model learns from the description what the tool is for, and an enum never comes without its type."""
    properties = tool.parameters["properties"].values()

    assert len(tool.description) > 100
    assert all(isinstance(part["type"], str) and part["description"] for part in properties)


@pytest.mark.parametrize(
    ("index", "required", "optional"),
    [
        (0, ["file"], ["offset", "limit"]),
        (1, ["file", "content"], []),
        (2, ["file", "old_string", "new_string"], []),
    ],
)
def test_the_arguments_of_each_tool(index: int, required: list[str], optional: list[str]) -> None:
    """Only the range of a read may be left out."""
    parameters = both()[index].parameters

    assert required == parameters["required"]
    assert required + optional == list(parameters["properties"])


def test_what_a_tool_does_to_a_file_is_declared() -> None:
    """Reading changes nothing, appending only adds, editing replaces; making a write again changes more."""

    assert [(True, False, True), (False, False, False), (False, True, False)] == [
        (tool.read_only, tool.destructive, tool.idempotent) for tool in both()
    ]


@pytest.mark.parametrize("tool", both(), ids=lambda tool: tool.name)
def test_the_examples_fit_the_schema(tool: ToolDefinition) -> None:
    """A vendor refuses a tool whose examples its own schema refuses."""
    validator = Draft202012Validator(tool.parameters)

    assert tool.examples
    assert [] == [error.message for example in tool.examples for error in validator.iter_errors(example)]


def test_a_range_starts_at_one() -> None:
    """The schema says what is checked: line numbers are whole and at least 1."""
    properties = both()[0].parameters["properties"]

    assert [("integer", 1)] * 2 == [
        (properties[name]["type"], properties[name]["minimum"]) for name in ("offset", "limit")
    ]
