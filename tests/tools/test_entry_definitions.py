"""The tools for entries are plain, closed and always the same, whatever they are called."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from memfiles.errors import InvalidArgument
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.entry_definitions import entry_tools
from memfiles.workflow.tool_names import TOOL_NAMES, ToolNames, ToolOperation, operations_of
from memfiles.workflow.workflow import EntriesSpec

ALL = [tool for tool_names in TOOL_NAMES for tool in entry_tools(tool_names)]
KEYWORDS = {"type", "description", "enum", "minimum", "maximum", "items"}


@pytest.mark.parametrize(
    ("tool_names", "expected"),
    [
        ("default", "memory_save memory_get memory_search memory_list memory_delete memory_update"),
        ("store-recall", "memory_store memory_recall memory_list memory_forget"),
        ("crud", "memory_search memory_create memory_read memory_update memory_delete"),
    ],
)
def test_the_three_sets_of_names(tool_names: str, expected: str) -> None:
    """Each set in its order, which never changes."""

    assert expected.split() == [tool.name for tool in entry_tools(tool_names)] == list(operations_of(tool_names))


@pytest.mark.parametrize("tool_names", ["", "Default", "x" * 1000, "memory_save"])
def test_unknown_names_are_told_the_known_ones(tool_names: str) -> None:
    """A typo costs one look."""
    with pytest.raises(InvalidArgument, match="use one of default, store-recall, crud"):
        entry_tools(tool_names)


def test_a_workflow_declares_the_same_sets() -> None:
    """What can be declared is what there is."""
    declared = EntriesSpec.model_json_schema()["properties"]["tool_names"]

    assert list(TOOL_NAMES) == list(get_args(ToolNames)) == declared["enum"]


def test_what_can_be_done_under_each_set() -> None:
    """All operations have a name in the default set; a recall is a get and a search in one."""
    done = {tool_names: set(operations.values()) for tool_names, operations in TOOL_NAMES.items()}

    assert set(get_args(ToolOperation)) - {"recall"} == done["default"]
    assert {"save", "recall", "list", "delete"} == done["store-recall"]
    assert {"save", "get", "search", "update", "delete"} == done["crud"]


@pytest.mark.parametrize("tool", ALL, ids=lambda tool: tool.name)
def test_schemas_are_valid_closed_and_plain(tool: ToolDefinition) -> None:
    """Objects refuse what they do not name; there is no union, reference, title or default for a vendor to refuse."""
    Draft202012Validator.check_schema(tool.parameters)
    properties = tool.parameters["properties"].values()

    assert ["type", "properties", "required", "additionalProperties"] == list(tool.parameters)
    assert tool.parameters["additionalProperties"] is False
    assert set() == {keyword for part in properties for keyword in part} - KEYWORDS
    assert all(isinstance(part["type"], str) and part["description"] for part in properties)
    assert len(tool.description) > 100


@pytest.mark.parametrize("tool", ALL, ids=lambda tool: tool.name)
def test_no_tool_offers_a_level(tool: ToolDefinition) -> None:
    """No argument can choose a level."""

    assert "level" not in tool.parameters["properties"]


@pytest.mark.parametrize("tool", ALL, ids=lambda tool: tool.name)
def test_the_examples_fit_the_schema(tool: ToolDefinition) -> None:
    """A vendor refuses a tool whose examples its own schema refuses."""
    validator = Draft202012Validator(tool.parameters)

    assert tool.examples
    assert [] == [error.message for example in tool.examples for error in validator.iter_errors(example)]


def test_the_arguments_of_a_save() -> None:
    """What is required stands first, and a list says what it holds."""
    parameters = entry_tools()[0].parameters

    assert ["key", "content"] == parameters["required"]
    assert "key content tags category kind importance pinned confidence links".split() == list(parameters["properties"])
    assert {"type": "string"} == parameters["properties"]["tags"]["items"]


def test_the_definitions_are_the_same_every_time() -> None:
    """Prompt caches hold."""
    one, other = ([tool.parameters for tool in entry_tools()] for _ in range(2))

    assert json.dumps(one) == json.dumps(other)


def test_what_a_tool_does_is_declared() -> None:
    """Looking changes nothing; a save made again changes nothing more, an update may count once more."""

    assert {
        "memory_save": (False, True, True),
        "memory_get": (True, False, True),
        "memory_search": (True, False, True),
        "memory_list": (True, False, True),
        "memory_delete": (False, True, True),
        "memory_update": (False, True, False),
    } == {tool.name: (tool.read_only, tool.destructive, tool.idempotent) for tool in entry_tools()}
