"""Workflow models: how entries are kept, how long, and where else than in the memory directory.

The rule this file guards: a model is always valid, and says every problem at once.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from memfiles.records.entry import Kind, Scope
from memfiles.workflow.declared import UNSHOWN, Declared
from memfiles.workflow.fields import DeclaredText, KeyName, Name, PositiveCount, Pull, Seconds, ToolNames, Url

Allowed = Annotated[
    tuple[Annotated[DeclaredText, Meta(min_length=1)], ...],
    Meta(
        description="Exceptions from the secrets check: names of rules, or exact texts of false alarms.",
        extra_json_schema={UNSHOWN: True},
    ),
]


class MirrorSpec(Declared, frozen=True, kw_only=True):
    """The mirror: a second home for the records."""

    url: Annotated[
        Url,
        Meta(
            description="The URL of the mirror. Keep credentials in the environment, not here.",
            examples=["s3://acme-agents/support-desk?region=eu-central-1", "file:///var/backups/memory"],
            extra_json_schema={UNSHOWN: True},
        ),
    ]
    pull: Annotated[
        Pull,
        Meta(
            description="When changes from other machines are fetched: cold-start (only files without a local record), "
            "restore (at every start), or an interval such as 5m."
        ),
    ] = "cold-start"
    on_conflict: Annotated[
        Literal["local", "remote"],
        Meta(description="Which side wins if two changes cannot be merged; the other side is kept in conflicts/."),
    ] = "local"
    key: Annotated[
        KeyName,
        Meta(
            description="The environment variable that holds the key, as env:NAME. With a key, every object in the "
            "mirror is signed, and one that does not verify is refused. It may hold `new,old` while a key is replaced.",
            examples=["env:MEMFILES_MIRROR_KEY"],
        ),
    ] = None
    encrypt: Annotated[
        bool, Meta(description="Whether the objects are encrypted as well; needs a key and memfiles[encryption].")
    ] = False

    @classmethod
    def _wrong(cls, known: Mapping[str, Any], *, older: bool) -> Iterator[tuple[str, str]]:
        if known.get("key") is not None and known.get("url", "").lower().startswith(("http://", "https://")):
            yield "key", "the HTTP service keeps content only and cannot hold signed objects; remove the key"
        if known.get("encrypt") and known.get("key", "") is None:
            yield "encrypt", "encryption needs a key; add `key: env:MEMFILES_MIRROR_KEY`"

    @property
    def identity(self) -> str:
        """The name of the mirror in the notes about it: those on unsigned objects do not count once it has a key."""
        return self.url if self.key is None else f"{self.url} signed"


class CategorySpec(Declared, frozen=True, kw_only=True):
    """How entries of one category are treated."""

    ttl: Annotated[
        Seconds | None, Meta(description="How long after its last change an entry expires, such as 72h.")
    ] = None
    scope: Annotated[
        Scope | None,
        Meta(
            description="Whom an entry belongs to: run, user, agent (all its users) or workspace (all agents). By "
            "default the user of the session that saves it, or its agent if it has none."
        ),
    ] = None
    from_users: Annotated[
        bool, Meta(description="Whether sessions that have a user may write such entries where other users see them.")
    ] = False
    max_entries: Annotated[PositiveCount | None, Meta(description="How many entries of this category are kept.")] = None
    max_bytes: Annotated[
        PositiveCount | None, Meta(description="How many bytes of entries of this category are kept.")
    ] = None


class KindSpec(Declared, frozen=True, kw_only=True):
    """How many entries of one kind are kept."""

    max_entries: Annotated[PositiveCount | None, Meta(description="How many entries of this kind are kept.")] = None
    max_bytes: Annotated[PositiveCount | None, Meta(description="How many bytes of entries of this kind are kept.")] = (
        None
    )


class EntriesSpec(Declared, frozen=True, kw_only=True):
    """The entries that agents save while they run. Agents have tools for entries only if this is declared."""

    max_entries: Annotated[
        PositiveCount, Meta(description="How many entries each agent keeps for each user at each level.")
    ] = 1000
    max_bytes: Annotated[
        PositiveCount, Meta(description="How many bytes of entries each agent keeps for each user at each level.")
    ] = 1024 * 1024
    hydrate_bytes: Annotated[
        PositiveCount, Meta(description="How many bytes of entries the model sees at the start of a run.")
    ] = 256 * 1024
    categories: Annotated[dict[Name, CategorySpec], Meta(description="Settings of categories, by name.")] = {}
    kinds: Annotated[
        dict[Kind, KindSpec], Meta(description="Budgets of single kinds, in addition to those of all entries.")
    ] = {}
    consolidate: Annotated[
        Literal["off", "close"],
        Meta(
            description="close: the end of a run merges exact duplicates and folds episodes if less than a fifth of a "
            "budget is left. off: only a save over a budget does."
        ),
    ] = "off"
    secrets_allow: Allowed = ()
    meaning: Annotated[
        bool, Meta(description="Whether searches also go by meaning; needs memfiles[semantic], but no network.")
    ] = False
    tool_names: Annotated[
        ToolNames,
        Meta(
            description="The naming profile of the tools: default (memory_save, get, search, list, delete, update), "
            "store-recall (memory_store, recall, list, delete), crud (memory_search, create, read, update, delete) or "
            "compact (memory_read, write, edit, search, delete, for memory files and entries together)."
        ),
    ] = "default"


class AuditSpec(Declared, frozen=True, kw_only=True):
    """What the audit holds besides changes and refusals."""

    reads: Annotated[
        bool,
        Meta(description="Whether the audit also says which records each session read, with a line for each read."),
    ] = False


class RetentionSpec(Declared, frozen=True, kw_only=True):
    """How long the audit, and content that no agent can see, are kept; then they are erased, also in the mirror."""

    expired: Annotated[
        Seconds, Meta(description="How long an entry is kept once it has expired.", extra_json_schema={"default": "7d"})
    ] = 7 * 86400
    deleted: Annotated[
        Seconds,
        Meta(
            description="How long an entry is kept once it was deleted or evicted.",
            extra_json_schema={"default": "90d"},
        ),
    ] = 90 * 86400
    audit: Annotated[
        Seconds,
        Meta(
            description="How long the audit is kept; it is dropped by whole months.",
            extra_json_schema={"default": "400d"},
        ),
    ] = 400 * 86400
