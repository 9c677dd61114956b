"""What a model may pass to the tools for entries: one argument model an operation.

The rule this file guards: no argument can choose a level. An entry is saved at the level the session is at, and a
model that asks for another one is told so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from memfiles.records.entry import Kind
from memfiles.tools.arguments import Arguments, TextArgument, list_in, whole

MAX_RESULTS = 50
DEFAULT_RESULTS = 10
MAX_PAGE = 100
DEFAULT_PAGE = 50

ENTRY_ALIASES: dict[str, tuple[str, ...]] = {
    "key": ("name", "id", "title", "path", "memory_key", "memory_id", "memory_name", "entry_key", "entry_id"),
    "content": ("value", "text", "memory", "data", "body"),
    "query": ("q", "text", "question", "search", "search_query", "search_text", "keywords"),
    "max_results": ("k", "top_k", "n", "limit", "count", "num_results", "maximum_results"),
    "limit": ("max_results", "page_size", "n", "count"),
    "prefix": ("key_prefix", "starts_with"),
    "cursor": ("next", "next_cursor", "page_token"),
    "tags": ("tag", "labels"),
    "links": ("link", "related"),
    "outcome": ("result",),
}
REFUSALS = {
    "level": "no call can choose it. The level of the session decides what is seen and where it is saved",
}


def _texts(value: object) -> object:
    """A list out of its JSON text, or out of the one text it would hold: models send both for a list."""
    found = list_in(value)
    return [found] if isinstance(found, str) and "," not in found and not found.lstrip().startswith("[") else found


def _said(value: object) -> object:
    """A text, None for an empty one: where every argument is required and none may be null, models send that."""
    return None if value == "" else value


def _small(value: object) -> object:
    """A word of an enum in small letters, as not every vendor holds a model to those; None for an empty one."""
    return _said(value.lower()) if isinstance(value, str) else value


Texts = Annotated[list[TextArgument], BeforeValidator(_texts)]
ShareArgument = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
ResultCount = Annotated[int, Field(ge=1, le=MAX_RESULTS), BeforeValidator(whole)]
PageSize = Annotated[int, Field(ge=1, le=MAX_PAGE), BeforeValidator(whole)]

Tags = Annotated[Texts | None, Field(description="Short words to group and find it by.")]
CategoryArgument = Annotated[
    TextArgument | None,
    BeforeValidator(_said),
    Field(
        description="How long it is kept: core (always shown), daily (some days), conversation (this run only), "
        "workspace (shared with the other agents), or a name of your own; by default general."
    ),
]
KindOf = Annotated[
    Kind | None,
    BeforeValidator(_small),
    Field(description="What it is: fact, note, procedure (a way to do something) or episode (what happened; fixed)."),
]
Importance = Annotated[
    ShareArgument | None, Field(description="0 to 1: how much would be lost without it; by default 0.5.")
]
Pinned = Annotated[bool | None, Field(description="Whether it shall be shown at the start of every run.")]
Confidence = Annotated[ShareArgument | None, Field(description="0 to 1: how sure it is; by default 1.")]
Links = Annotated[Texts | None, Field(description="The keys of entries that belong to this one.")]
OnlyTags = Annotated[Texts | None, Field(description="Only entries that have all of these tags.")]
OnlyCategory = Annotated[
    TextArgument | None, BeforeValidator(_said), Field(description="Only entries of this category.")
]
OnlyKind = Annotated[Kind | None, BeforeValidator(_small), Field(description="Only entries of this kind.")]
MaxResults = Annotated[
    ResultCount | None, Field(description=f"How many results at most; by default {DEFAULT_RESULTS}.")
]


class EntryArguments(Arguments):
    """The arguments of one tool for entries."""

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = ENTRY_ALIASES
    refusals: ClassVar[Mapping[str, str]] = REFUSALS

    def given(self, *left_out: str) -> dict[str, Any]:
        """What was given, by name, without those that are ``left_out``."""
        return {name: value for name, value in self if value is not None and name not in left_out}


class SaveEntry(EntryArguments):
    """The arguments of a save."""

    key: Annotated[
        TextArgument, Field(description="What to call it, such as customers/ada/plan: short, and always the same.")
    ]
    content: Annotated[
        TextArgument, Field(description="The text to remember. It replaces what is saved under the key.")
    ]
    tags: Tags = None
    category: CategoryArgument = None
    kind: KindOf = None
    importance: Importance = None
    pinned: Pinned = None
    confidence: Confidence = None
    links: Links = None


class GetEntry(EntryArguments):
    """The arguments of a get."""

    key: Annotated[TextArgument, Field(description="The key, exactly as it was saved.")]


class SearchEntries(EntryArguments):
    """The arguments of a search."""

    query: Annotated[TextArgument, Field(description="Words to look for, or a question.")]
    max_results: MaxResults = None
    tags: OnlyTags = None
    category: OnlyCategory = None
    kind: OnlyKind = None


class ListEntries(EntryArguments):
    """The arguments of a list."""

    prefix: Annotated[TextArgument | None, Field(description="Only keys that begin with this text.")] = None
    tags: OnlyTags = None
    category: OnlyCategory = None
    kind: OnlyKind = None
    limit: Annotated[PageSize | None, Field(description=f"How many at most; by default {DEFAULT_PAGE}.")] = None
    cursor: Annotated[
        TextArgument | None, Field(description="The next of the page before, to go on where it ended.")
    ] = None


class DeleteEntry(EntryArguments):
    """The arguments of a delete."""

    key: Annotated[TextArgument, Field(description="The key, exactly as it was saved.")]


class UpdateEntry(EntryArguments):
    """The arguments of an update."""

    key: Annotated[TextArgument, Field(description="The key, exactly as it was saved.")]
    content: Annotated[TextArgument | None, Field(description="A new text; without it the text stays.")] = None
    tags: Tags = None
    category: CategoryArgument = None
    kind: KindOf = None
    importance: Importance = None
    pinned: Pinned = None
    confidence: Confidence = None
    links: Links = None
    outcome: Annotated[
        Literal["success", "failure"] | None,
        BeforeValidator(_small),
        Field(description="How it went when you did what the entry says; counted, and used to rank it."),
    ] = None


class RecallEntries(EntryArguments):
    """The arguments of a recall: a get with ``key``, a search with ``query``."""

    key: Annotated[
        TextArgument | None, BeforeValidator(_said), Field(description="The key, to get the one entry saved under it.")
    ] = None
    query: Annotated[
        TextArgument | None, Field(description="Words to look for, or a question, when no key is known.")
    ] = None
    max_results: MaxResults = None
    tags: OnlyTags = None
    category: OnlyCategory = None
    kind: OnlyKind = None
