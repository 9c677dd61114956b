"""The tools for entries that a model may be offered, under one of three sets of names.

The rule this file guards: the names are a choice, the operations are not. Every set is made of the same operations
with the same arguments and results, so that a prompt written for another memory works without a change in meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memfiles.tools.definitions import ToolDefinition, parameters_of
from memfiles.tools.entry_arguments import (
    DeleteEntry,
    EntryArguments,
    GetEntry,
    ListEntries,
    RecallEntries,
    SaveEntry,
    SearchEntries,
    UpdateEntry,
)
from memfiles.tools.outputs import ENTRY_OUTPUTS
from memfiles.workflow.tool_names import ToolOperation, operations_of


@dataclass(frozen=True, slots=True)
class _Described:
    """What is said of one operation, whatever it is called."""

    arguments: type[EntryArguments]
    description: str
    examples: tuple[dict[str, Any], ...]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = True


OPERATIONS: dict[ToolOperation, _Described] = {
    "save": _Described(
        SaveEntry,
        "Save something worth remembering in later runs, under a key of your choice. Use one key for one thing: saving "
        "under a key that is taken replaces its text, and what you do not pass stays as it was. Say it in full "
        "sentences that can be understood alone. Never store passwords, keys or tokens, nor whole conversations. "
        "The result names what had to make room, if anything.",
        (
            {"key": "customers/ada/plan", "content": "Ada moved from Free to Pro on 2026-11-21.", "tags": ["ada"]},
            {"key": "how-to/refund", "content": "Refund a double charge at once.", "kind": "procedure"},
        ),
        destructive=True,
    ),
    "get": _Described(
        GetEntry,
        "Get one thing you saved by its key, with its whole text, tags, level and dates. Use it when you know the key, "
        "or when a search result says that it is truncated. A key under which there is nothing is no error: then "
        "found is false.",
        ({"key": "customers/ada/plan"},),
        read_only=True,
    ),
    "search": _Described(
        SearchEntries,
        "Search what you saved in earlier runs, by words or by a question, the best match first. Search before you "
        "answer from memory, and before you save something that may be there already. Every result has its key, "
        "level, tags, score and the text, cut at 2,000 bytes.",
        (
            {"query": "Which plan is Ada on?"},
            {"query": "refund double charge", "max_results": 5, "kind": "procedure"},
        ),
        read_only=True,
    ),
    "recall": _Described(
        RecallEntries,
        "Recall what you saved in earlier runs: one thing by its key, with its whole text, or the best matches for "
        "a query of words or a question. Pass key or query, not both. Recall before you answer from memory, and before "
        "you save something that may be there already. A key under which there is nothing is no error: then found "
        "is false.",
        ({"key": "customers/ada/plan"}, {"query": "Which plan is Ada on?", "max_results": 5}),
        read_only=True,
    ),
    "list": _Described(
        ListEntries,
        "List what is saved, by key, without the texts: keys, levels, tags, kinds, sizes and dates. Use it to see what "
        "there is, or which keys begin alike. Where next is not null there is more: pass it as cursor to go on.",
        ({}, {"prefix": "customers/", "limit": 20}),
        read_only=True,
    ),
    "delete": _Described(
        DeleteEntry,
        "Delete one thing you saved, by its key, because it is wrong or not needed any more. It is hidden from then on "
        "and can be restored by a person only. To correct something, save it again under its key instead.",
        ({"key": "customers/ada/plan"},),
        destructive=True,
    ),
    "update": _Described(
        UpdateEntry,
        "Change parts of something you saved, by its key: its text, its tags, how long it is kept, or whether it is "
        "pinned. What you do not pass stays as it is. After you did what a saved procedure says, pass outcome, so that "
        "what works is found first. A key under which there is nothing is an error.",
        (
            {"key": "customers/ada/plan", "tags": ["ada", "billing"]},
            {"key": "how-to/refund", "outcome": "success"},
        ),
        destructive=True,
        idempotent=False,
    ),
}


def entry_tools(tool_names: str = "default") -> list[ToolDefinition]:
    """The tools for entries under one set of names, in their order; always the same."""
    return [_tool(name, operation) for name, operation in operations_of(tool_names).items()]


def _tool(name: str, operation: ToolOperation) -> ToolDefinition:
    described = OPERATIONS[operation]
    return ToolDefinition(
        name=name,
        description=described.description,
        parameters=parameters_of(described.arguments),
        output=ENTRY_OUTPUTS[operation],
        read_only=described.read_only,
        destructive=described.destructive,
        idempotent=described.idempotent,
        examples=described.examples,
    )
