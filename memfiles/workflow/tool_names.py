"""What the tools for entries are called: three sets of names for the same operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from memfiles.errors import InvalidArgument

ToolNames = Literal["default", "store-recall", "crud"]
ToolOperation = Literal["save", "get", "search", "recall", "list", "delete", "update"]

TOOL_NAMES: dict[ToolNames, dict[str, ToolOperation]] = {
    "default": {
        "memory_save": "save",
        "memory_get": "get",
        "memory_search": "search",
        "memory_list": "list",
        "memory_delete": "delete",
        "memory_update": "update",
    },
    "store-recall": {
        "memory_store": "save",
        "memory_recall": "recall",
        "memory_list": "list",
        "memory_forget": "delete",
    },
    "crud": {
        "memory_search": "search",
        "memory_create": "save",
        "memory_read": "get",
        "memory_update": "update",
        "memory_delete": "delete",
    },
}
"""The sets of names: tool name -> operation, in the order in which the tools are offered."""


def check_tool_names(tool_names: str) -> ToolNames:
    """The name of a set of names; ``InvalidArgument`` lists the known ones."""
    for known in TOOL_NAMES:
        if known == tool_names:
            return known
    raise InvalidArgument(f"unknown tool names {ascii(tool_names)[:80]}; use one of {', '.join(TOOL_NAMES)}")


def operations_of(tool_names: str) -> Mapping[str, ToolOperation]:
    """The operations of one set of names, by tool name; ``InvalidArgument`` for a set that is not known."""
    return TOOL_NAMES[check_tool_names(tool_names)]
