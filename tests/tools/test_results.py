"""A result tells the model in a sentence what happened, and the program in a code and an object."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

import memfiles
from memfiles.errors import SizeExceeded
from memfiles.records.file_changes import Receipt
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects import structured
from memfiles.tools.profiles import offered
from memfiles.tools.results import ToolResult, appended, edited, failed
from memfiles.workflow.fields import TOOL_NAMES, ToolNames

RECEIPT = Receipt(
    uid="u", name="notes", revision=8, size_bytes=40, max_size_bytes=100, bytes_left=60, share=0.4, matches=1, line=4
)


def test_an_append_tells_the_numbers_of_its_receipt() -> None:
    """Revision, bytes used and bytes left; the receipt itself is the data."""
    expected = "Added to the end of notes. Now at revision 8: 40 of 100 bytes used, 60 left."

    assert ToolResult(expected, data=RECEIPT.to_dict()) == appended(RECEIPT)


def test_a_nearly_full_file_is_said_so() -> None:
    """The receipt's warning stands at the end, where it is not missed."""

    assert appended(replace(RECEIPT, warning="82 % is used")).text.endswith("60 left. Warning: 82 % is used.")


def test_an_edit_tells_its_line() -> None:
    """The model can check that it hit what it meant."""

    assert edited(RECEIPT).text.startswith("Replaced the text at line 4 of notes. Now at revision 8")


def test_an_ambiguous_edit_says_how_many_matches_there_were() -> None:
    """The first was replaced; the model is told how to reach another."""
    text = edited(replace(RECEIPT, matches=3)).text

    assert text.startswith("Replaced the first of 3 matches in notes, the one at line 4; the rest is unchanged.")
    assert "try again with more surrounding text" in text


def test_a_replay_is_named() -> None:
    """A call that was carried out before changes nothing, and the model learns it."""
    text = appended(replace(RECEIPT, replayed=True)).text

    assert text.startswith("This call had already been carried out; nothing changed now. Added to the end of notes.")


def test_an_error_keeps_its_code_and_sentence() -> None:
    """The code is the error's own, the text its message."""

    assert ToolResult("too big", is_error=True, code="size_exceeded") == failed(SizeExceeded("too big"))


def test_a_result_is_an_object_with_every_field() -> None:
    """The same keys whatever happened, for JSON."""

    assert {"text": "hi", "is_error": False, "code": None, "data": None} == ToolResult("hi").to_dict()


WORKFLOW = """\
memory:
  durability: os
  files: [{uid: n-1, name: notes, description: What is known., max_size_bytes: 40, content: "- Ada\\n- Ada\\n"}]
  entries: {max_entries: 2}
agents: {support: {forget: true, memory: [{id: n-1, mode: rw}]}}
"""
SAVE = {"key": "plan", "content": "Ada is on Pro. " * 200, "tags": ["ada"]}
FILE_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_memory", {"file": "notes"}),
    ("read_memory", {"file": "notes", "offset": 2, "limit": 1}),
    ("append_memory", {"file": "notes", "content": "- Bob is on the Pro plan\n"}),
    ("append_memory", {"file": "notes", "content": "- Bob is on the Pro plan\n"}),
    ("edit_memory", {"file": "notes", "old_string": "Ada", "new_string": "Eve"}),
]
ENTRY_CALLS: dict[ToolNames, list[tuple[str, dict[str, Any]]]] = {
    "default": [
        ("memory_save", SAVE),
        ("memory_save", SAVE),
        ("memory_save", {"key": "a", "content": "x"}),
        ("memory_save", {"key": "b", "content": "y"}),
        ("memory_save", SAVE | {"content": "Ada is on Pro again. " * 200}),
        ("memory_get", {"key": "plan"}),
        ("memory_get", {"key": "nothing"}),
        ("memory_search", {"query": "Which plan is Ada on?"}),
        ("memory_list", {}),
        ("memory_list", {"limit": 1}),
        ("memory_update", {"key": "plan", "outcome": "success"}),
        ("memory_delete", {"key": "plan"}),
        ("memory_forget", {"key": "plan", "why": "asked to"}),
    ],
    "store-recall": [
        ("memory_store", SAVE),
        ("memory_recall", {"key": "plan"}),
        ("memory_recall", {"query": "plan"}),
        ("memory_recall", {"key": "nothing"}),
        ("memory_list", {}),
        ("memory_delete", {"key": "plan"}),
    ],
    "crud": [
        ("memory_create", SAVE),
        ("memory_read", {"key": "plan"}),
        ("memory_search", {"query": "plan"}),
        ("memory_update", {"key": "plan", "content": "z"}),
        ("memory_delete", {"key": "plan"}),
    ],
}


def definition_of(name: str, tool_names: ToolNames) -> ToolDefinition:
    tools = offered(tool_names, readable=["notes"], writable=["notes"], forgets=True)
    return next(tool for tool in tools if tool.name == name)


@pytest.mark.parametrize("tool_names", ENTRY_CALLS)
def test_every_result_fits_its_schema(memory: memfiles.Memory, tool_names: ToolNames) -> None:
    """Under each set of names; what a result holds is also named in the schema, so that nothing goes undescribed."""
    session = memory.session("support", run="monday", tool_names=tool_names)
    for name, arguments in [*FILE_CALLS, *ENTRY_CALLS[tool_names]]:
        result = session.call(name, arguments, call_id=str(arguments)[:99])
        tool = definition_of(name, tool_names)
        content = structured(tool, result)

        assert (name, None) == (name, result.code)
        assert [] == [error.message for error in Draft202012Validator(tool.output).iter_errors(content)]
        assert set() == set(content or {}) - set(tool.output["properties"])


def test_every_tool_is_called_here() -> None:
    """A new one needs a call above."""
    called = {name for calls in [FILE_CALLS, *ENTRY_CALLS.values()] for name, _ in calls}
    files: dict[str, Any] = {"readable": ["notes"], "writable": ["notes"]}
    described = [tool for names in TOOL_NAMES for tool in offered(names, **files, forgets=True)]

    assert {tool.name for tool in described if tool.output} == called
