"""Workflow models: how entries are kept, how long, and where besides the memory directory.

The rule this file guards: a model is always valid, and says every problem at once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from memfiles.records.entry import Kind, Scope
from memfiles.workflow.fields import DeclaredText, KeyName, Name, PositiveCount, Pull, Seconds, ToolNames, Url
from memfiles.workflow.problems import invalid_argument, problems_in


class Declared(BaseModel):
    """Base of the models: invalid values in Python code raise one ``InvalidArgument`` that lists every problem."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="wrap")
    @classmethod
    def _one_clear_error(cls, data: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Self:
        try:
            return handler(data)  # type: ignore[no-any-return]
        except ValidationError as error:
            if info.context is not None:
                raise
            raise invalid_argument(problems_in(error, model=cls), model=cls) from None


Allowed = Annotated[
    tuple[Annotated[DeclaredText, Field(min_length=1)], ...],
    Field(description="Exceptions from the secrets check: names of rules, or exact texts of false alarms.", repr=False),
]


class MirrorSpec(Declared):
    """The mirror: a second home for the records."""

    url: Url = Field(
        description="The URL of the mirror. Keep credentials in the environment, not here.",
        examples=["s3://acme-agents/support-desk?region=eu-central-1", "file:///var/backups/memory"],
        repr=False,
    )
    pull: Pull = Field(
        "cold-start",
        description="When changes from other machines are fetched: cold-start (only files without a local record), "
        "restore (at every start), or an interval such as 5m.",
    )
    on_conflict: Literal["local", "remote"] = Field(
        "local", description="Which side wins if two changes cannot be merged; the other side is kept in conflicts/."
    )
    key: KeyName = Field(
        None,
        description="The environment variable that holds the key, as env:NAME. With a key, every object in the mirror "
        "is signed, and one that does not verify is refused. It may hold `new,old` while a key is replaced.",
        examples=["env:MEMFILES_MIRROR_KEY"],
    )
    encrypt: Annotated[bool, Strict()] = Field(
        False, description="Whether the objects are encrypted as well; needs a key and memfiles[encryption]."
    )

    @field_validator("key", "encrypt")
    @classmethod
    def _can_be_sealed(cls, value: str | bool | None, info: ValidationInfo) -> str | bool | None:
        if info.field_name == "encrypt" and value and info.data.get("key", "") is None:
            raise ValueError("encryption needs a key; add `key: env:MEMFILES_MIRROR_KEY`")
        if info.field_name == "key" and str(info.data.get("url")).lower().startswith(("http://", "https://")):
            raise ValueError("the HTTP service keeps content only and cannot hold signed objects; remove the key")
        return value

    @property
    def identity(self) -> str:
        """The name of the mirror in the notes about it: those on unsigned objects do not count once it has a key."""
        return self.url if self.key is None else f"{self.url} signed"


class CategorySpec(Declared):
    """How entries of one category are treated."""

    ttl: Seconds | None = Field(None, description="How long after its last change an entry expires, such as 72h.")
    scope: Scope | None = Field(
        None,
        description="Whom an entry belongs to: run, user, agent (all its users) or workspace (all agents). By default "
        "the user of the session that saves it, or its agent if it has none.",
    )
    from_users: Annotated[bool, Strict()] = Field(
        False, description="Whether sessions that have a user may write such entries where other users see them."
    )
    max_entries: PositiveCount | None = Field(None, description="How many entries of this category are kept.")
    max_bytes: PositiveCount | None = Field(None, description="How many bytes of entries of this category are kept.")


class KindSpec(Declared):
    """How many entries of one kind are kept."""

    max_entries: PositiveCount | None = Field(None, description="How many entries of this kind are kept.")
    max_bytes: PositiveCount | None = Field(None, description="How many bytes of entries of this kind are kept.")


class EntriesSpec(Declared):
    """The entries that agents save while they run. Agents have tools for entries only if this is declared."""

    max_entries: PositiveCount = Field(
        1000, description="How many entries each agent keeps for each user at each level."
    )
    max_bytes: PositiveCount = Field(
        1024 * 1024, description="How many bytes of entries each agent keeps for each user at each level."
    )
    hydrate_bytes: PositiveCount = Field(
        256 * 1024, description="How many bytes of entries the model sees at the start of a run."
    )
    categories: dict[Name, CategorySpec] = Field({}, description="Settings of categories, by name.")
    kinds: dict[Kind, KindSpec] = Field({}, description="Budgets of single kinds, in addition to those of all entries.")
    consolidate: Literal["off", "close"] = Field(
        "off",
        description="close: the end of a run merges exact duplicates and folds episodes if less than a fifth of a "
        "budget is left. off: only a save over a budget does.",
    )
    secrets_allow: Allowed = ()
    meaning: Annotated[bool, Strict()] = Field(
        False, description="Whether searches also go by meaning; needs memfiles[semantic], but no network."
    )
    tool_names: ToolNames = Field(
        "default",
        description="The naming profile of the tools: default (memory_save, get, search, list, delete, update), "
        "store-recall (memory_store, recall, list, delete), crud (memory_search, create, read, update, delete) or "
        "compact (memory_read, write, edit, search, delete, for memory files and entries together).",
    )


class AuditSpec(Declared):
    """What the audit holds besides changes and refusals."""

    reads: Annotated[bool, Strict()] = Field(
        False, description="Whether the audit also says which records each session read; a line for each read."
    )


class RetentionSpec(Declared):
    """How long content is kept that no agent can see, and the audit; then it is erased, in the mirror as well."""

    expired: Seconds = Field("7d", description="How long an entry is kept once it has expired.", validate_default=True)
    deleted: Seconds = Field(
        "90d", description="How long an entry is kept once it was deleted or evicted.", validate_default=True
    )
    audit: Seconds = Field(
        "400d", description="How long the audit is kept; it is dropped by whole months.", validate_default=True
    )
