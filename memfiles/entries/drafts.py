"""Drafts, the rules of a workflow that check each on its way into an entry, and the receipts that answer them.

The rules this file guards: stored text has passed the secrets gate and fits the record format, and a refusal says what
is wrong and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from types import NoneType
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from memfiles.entries.budgets import Budget
from memfiles.errors import InvalidArgument, SizeExceeded
from memfiles.records import NamedTuple
from memfiles.records.entry import (
    CONVERSATION,
    DEFAULT_CONFIDENCE,
    FACETS,
    KINDS,
    MAX_ENTRY_BYTES,
    MAX_LABEL_BYTES,
    MAX_LINKS,
    MAX_TAGS,
    WORKSPACE_CATEGORY,
    Entry,
    Kind,
    Scope,
)
from memfiles.records.keys import NAME_MAX, check_key, check_name, check_switch, check_whole, listed
from memfiles.records.levels import Levels
from memfiles.records.record import check_text
from memfiles.secrets.gate import Policy, Scanner, gate_labels, judge_change, may_hold_secrets

MAX_TAG_BYTES = 64
MAX_TTL_SECONDS = 10 * 365 * 86400
DEFAULT_HYDRATE_BYTES = 256 * 1024
DEFAULT_SHARE = 0.8  # of its budget, to which a consolidation brings a partition
MAX_GONE = 1000  # in a list of deleted entries
_LOOKED_AT_ONCE = 64  # drafts
_LISTS = (list, tuple, NoneType)  # read the same twice
DAILY = "daily"
HOUR_SECONDS = 60 * 60
DAY_SECONDS = 24 * HOUR_SECONDS
FIRST_MOMENT, LAST_MOMENT = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"


class Draft(Struct, frozen=True):
    """An entry to be saved: None is "not given", which keeps the stored value, or else takes the default.

    ``ttl`` is in seconds from the last change of the content. ``restarts``: it counts from this save, to the
    millisecond, and without a ``ttl`` that of the category does. ``outcome`` counts a success or a failure of the
    advice in the entry. ``said_at`` is a date or a time.
    """

    key: str
    content: str | None = None
    tags: Sequence[str] | None = None
    category: str | None = None
    kind: Kind | None = None
    confidence: float | None = None
    importance: float | None = None
    pinned: bool | None = None
    links: Sequence[str] | None = None
    ttl: float | None = None
    outcome: Literal["success", "failure"] | None = None
    said_at: str | datetime | None = None
    source: str | None = None
    restarts: bool = False


def facets_of(draft: Draft) -> dict[str, Any]:
    """The fields of an entry that the draft sets, apart from its content."""
    given: dict[str, Any] = {}
    for name, kept_as in FACETS:
        if (value := getattr(draft, name)) is not None:
            given[name] = kept_as(value) if kept_as in (float, tuple) else value
    return given


def draft_of_entry(entry: Entry, *, key: str) -> Draft:
    """A draft that saves the content and all facets of an entry under ``key``."""
    return Draft(key, entry.content, **{name: getattr(entry, name) for name, _ in FACETS})


def drafts_of(values: Iterable[Draft | Mapping[str, Any]]) -> list[Draft]:
    """The drafts in a list of drafts, or of objects with their fields."""
    if isinstance(values, (str, bytes, Mapping, Draft)) or not isinstance(values, Iterable):
        raise InvalidArgument(f"entries to save must be a list of objects, not {type(values).__name__}")
    try:
        return [each if isinstance(each, Draft) else Draft(**each) for each in values]
    except TypeError as error:
        raise InvalidArgument(
            f"an entry to save must be an object with key, content and other arguments of save: {error}"
        ) from None


class Saved(Struct, frozen=True):
    """The receipt of a save, update, edit, undo or restore. ``evicted`` are the keys that a budget cost.

    Less was lost of the keys in ``merged``, whose content another entry has, and in ``folded``, which became a note.
    ``plan`` is the id by which ``undo_plan`` takes all this back.
    ``replayed``: nothing was written, because this very call had been accepted before. ``matches`` and ``line``: how
    often the text of an edit occurred, and the line of the first occurrence, which it replaced. If content was replaced
    and no more was said, ``kept_tags`` are the tags that stayed, and ``confidence_was`` is the confidence before its
    reset to 1.
    """

    key: str
    level: str
    revision: int
    size_bytes: int
    evicted: tuple[str, ...] = ()
    replayed: bool = False
    warnings: tuple[str, ...] = ()
    matches: int | None = None
    line: int | None = None
    id: str = ""
    kept_tags: tuple[str, ...] = ()
    confidence_was: float | None = None
    merged: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    plan: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, without fields that do not apply."""
        shown: dict[str, Any] = {"saved": True, "key": self.key, "level": self.level, "revision": self.revision}
        shown |= {"evicted": list(self.evicted), "id": self.id}
        hidden = {"merged": list(self.merged), "folded": list(self.folded), "plan": self.plan}
        shown |= {name: found for name, found in hidden.items() if found}
        shown |= {"replayed": True} if self.replayed else {}
        shown |= {"warnings": list(self.warnings)} if self.warnings else {}
        shown |= {"matches": self.matches, "line": self.line} if self.matches else {}
        shown |= {"kept_tags": list(self.kept_tags)} if self.kept_tags else {}
        reset = {"confidence": DEFAULT_CONFIDENCE, "confidence_was": self.confidence_was}
        return shown | (reset if self.confidence_was is not None else {})


class Revealed(NamedTuple):
    """An entry that was shadowed by one that is hidden now."""

    level: str
    id: str


class Deleted(Struct, frozen=True):
    """An entry that is hidden now, and can be restored; ``revealed`` is what is visible again under its key."""

    key: str
    level: str
    revision: int
    id: str = ""
    revealed: Revealed | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        shown = {"deleted": True, "key": self.key, "level": self.level, "revision": self.revision, "id": self.id}
        return shown | ({"visible_again": self.revealed._asdict()} if self.revealed else {})


class Category(Struct, frozen=True):
    """The treatment of entries of one category. ``ttl`` is in seconds after the last change of content; None: no limit.

    ``scope`` is whom they belong to; None: the user of the session that saves them, or its agent if it has none. What
    belongs to a run is never mirrored, and is gone when its session closes. ``from_users``: sessions that have a user
    may write them in a scope that other users see.
    """

    name: str
    ttl: int | None = None
    scope: Scope | None = None
    from_users: bool = False


class Retention(Struct, frozen=True):
    """How long hidden content and the audit are kept, in seconds, until they are erased for good.

    ``expired`` counts from an entry's expiry, ``deleted`` from when it was deleted or evicted, whichever is over first.
    """

    expired: int = 7 * DAY_SECONDS
    deleted: int = 90 * DAY_SECONDS
    audit: int = 400 * DAY_SECONDS

    def moments(self, now: str) -> dict[str, str]:
        """The limits of a purge: it erases entries that expired by the first moment, or were hidden by the second."""
        return {"expired": later(now, -self.expired), "retired": later(now, -self.deleted)}

    def erasure(self, entry: Entry) -> str | None:
        """The moment when the entry's content is to be erased, as it is now; None: never."""
        expired = later(entry.expires_at, self.expired) if entry.expires_at is not None else LAST_MOMENT
        hidden = later(entry.retired.at, self.deleted) if entry.retired is not None else LAST_MOMENT
        return None if (first := min(expired, hidden)) == LAST_MOMENT else first


BUILT_IN: Mapping[str, Category] = {
    DAILY: Category(DAILY, ttl=72 * HOUR_SECONDS),
    CONVERSATION: Category(CONVERSATION, ttl=24 * HOUR_SECONDS, scope="run"),
    WORKSPACE_CATEGORY: Category(WORKSPACE_CATEGORY, scope="workspace"),
}


class Checked(Struct, frozen=True):
    """A draft that may be stored, and the warnings for its writer."""

    draft: Draft
    warnings: tuple[str, ...] = ()


class EntryRules(Struct, frozen=True):
    """The rules that a workflow gives for entries, handed to every operation. Sizes are UTF-8 bytes.

    ``categories`` are the declared ones, ``readers`` the agents that may only read.
    """

    levels: Levels = Levels()
    secrets: Policy = "block"
    allow: tuple[str, ...] = ()
    scan: Scanner | None = None
    budget: Budget = Budget()
    hydrate_bytes: int = DEFAULT_HYDRATE_BYTES
    categories: Mapping[str, Category] = field(default_factory=dict)
    retention: Retention = Retention()
    readers: frozenset[str] = frozenset()

    def category(self, name: str) -> Category:
        """The category of that name, treated as ``general`` if it is neither built in nor declared."""
        return self.categories.get(name) or BUILT_IN.get(name) or Category(name)

    def expiry(self, category: str, since: str, ttl: float | None = None) -> str | None:
        """The expiry of an entry whose content last changed at ``since``, by its own ``ttl`` or the category's."""
        seconds = self.category(category).ttl if ttl is None else ttl
        return None if seconds is None else later(since, seconds)

    def check_all(self, drafts: Sequence[Draft]) -> list[Checked]:
        """Each draft as of ``check``; one look for credentials at many texts at once mostly finds none in any."""
        checked: list[Checked] = []
        for at in range(0, len(drafts), _LOOKED_AT_ONCE):
            some = drafts[at : at + _LOOKED_AT_ONCE]
            is_clean = self.scan is None and not may_hold_secrets("\n".join(chain.from_iterable(map(_texts_of, some))))
            checked += [self.check(draft, is_clean=is_clean and _is_read_again(draft)) for draft in some]
        return checked

    def check(self, draft: Draft, *, before: Entry | None = None, is_clean: bool = False) -> Checked:
        """The draft as it may be stored; ``InvalidArgument``, ``SizeExceeded`` or ``SecretRefused`` if it may not.

        Credentials that the entry held ``before`` are not refused. ``is_clean``: none of the texts can be a credential.
        """
        check_key(draft.key)
        warnings: tuple[str, ...] = ()
        if not is_clean:
            named = {"the category": draft.category, "the source": draft.source}
            labels = {what: label[:MAX_LABEL_BYTES] for what, label in named.items() if isinstance(label, str)}
            warnings = self.check_labels(labels)  # as much as an error may quote; longer ones are refused next
        draft = _checked_facets(draft)
        if not is_clean:
            numbered = {f"tag {number}": tag for number, tag in enumerate(draft.tags or (), 1)}
            numbered |= {f"link {number}": link for number, link in enumerate(draft.links or (), 1)}
            warnings += self.check_labels({"the key": draft.key, **numbered})
        if draft.content is not None:
            _check_content(draft.content)
        if draft.content is None or is_clean:
            return Checked(draft, warnings)
        old, new = before.content if before is not None else "", draft.content
        judge = partial(judge_change, policy=self.secrets, allow=self.allow, scan=self.scan)
        gated = judge(old, new, start=0, end=len(new))
        _check_content(gated.text)  # a redaction may be longer than what it replaces
        return Checked(replace(draft, content=gated.text), (*warnings, *gated.warnings))

    def warnings_about(self, content: str, *, before: str = "") -> tuple[str, ...]:
        """Warnings about credentials in a stored text that the text ``before`` did not contain."""
        policy: Policy = "off" if self.secrets == "off" else "warn"
        judge = partial(judge_change, policy=policy, allow=self.allow, scan=self.scan)
        return judge(before, content, start=0, end=len(content)).warnings

    def check_labels(self, labels: Mapping[str, str | None]) -> tuple[str, ...]:
        """See ``gate_labels``."""
        return gate_labels(labels, policy=self.secrets, allow=self.allow, scan=self.scan)


def _texts_of(draft: Draft) -> list[str]:
    """The texts of a draft that is not checked yet."""
    lists = [each for each in (draft.tags, draft.links) if isinstance(each, (list, tuple))]
    given = (draft.key, draft.content, draft.category, draft.source, *chain.from_iterable(lists))
    return [text for text in given if isinstance(text, str)]


def _is_read_again(draft: Draft) -> bool:
    """Whether a second look at the draft sees the same texts: it has no tags or links that come out of a generator."""
    return isinstance(draft.tags, _LISTS) and isinstance(draft.links, _LISTS)


def _check_content(content: str) -> None:
    check_text(content)
    if not content.strip():
        raise InvalidArgument("the content is blank: say what to remember, or delete the entry")
    if (size := len(content.encode())) > MAX_ENTRY_BYTES:
        raise SizeExceeded(
            f"the content is {size} bytes, over the {MAX_ENTRY_BYTES} an entry may have: save the gist, or several "
            f"entries under keys of their own"
        )


def check_category(category: object) -> str:
    """The name of a category, known or not; ``InvalidArgument`` for a value that cannot be one."""
    if not isinstance(category, str):
        raise InvalidArgument("category must be text")
    try:
        return check_name(category)
    except InvalidArgument:
        raise InvalidArgument(
            f"category {ascii(category[:40])} is not a valid name: use 1 to {NAME_MAX} ASCII letters, digits, '_', '.' "
            f"or '-', starting with a letter, digit or '_'"
        ) from None


def check_kind(kind: object) -> Kind:
    """The kind of an entry; ``InvalidArgument`` for any other value."""
    for known in KINDS:
        if kind == known:
            return known
    raise InvalidArgument(f"kind {str(kind)[:40]!r} is not known: use one of {', '.join(KINDS)}")


def checked_tags(tags: object) -> tuple[str, ...]:
    """Tags in their order without repetitions; ``InvalidArgument`` for a bad tag, or for too many."""
    found = tuple(dict.fromkeys(listed(tags, "tags")))
    for tag in found:
        check_text(tag)
        size = len(tag.encode())
        if not tag.strip() or size > MAX_TAG_BYTES or not tag.isprintable():
            raise InvalidArgument(f"a tag must have 1 to {MAX_TAG_BYTES} printable bytes and not be blank")
    if len(found) > MAX_TAGS:
        raise InvalidArgument(f"{len(found)} tags are more than the {MAX_TAGS} an entry may have")
    return found


def seconds_between(earlier: str, later: str) -> int:
    """The whole seconds between two timestamps; 0 if one of them is invalid."""
    try:
        return int((datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
    except ValueError:
        return 0


def later(moment: str, seconds: float) -> str:
    """The timestamp that many seconds after another, or before it, at most the last or the first one there is."""
    try:
        then = datetime.fromisoformat(moment) + timedelta(seconds=seconds)
    except OverflowError:
        return LAST_MOMENT if seconds > 0 else FIRST_MOMENT
    except ValueError:
        raise InvalidArgument(f"{moment[:40]!r} is not a moment such as 2026-11-21T09:00:00.000Z") from None
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _checked_facets(draft: Draft) -> Draft:
    """The draft with its facets as an entry has them; ``InvalidArgument`` for one that it may not have."""
    if draft.category is not None:
        check_category(draft.category)
    if draft.kind is not None:
        check_kind(draft.kind)
    for name, kept_as in FACETS:
        share = getattr(draft, name) if kept_as is float else None
        is_number = isinstance(share, (int, float)) and not isinstance(share, bool)
        if share is not None and not (is_number and 0 <= share <= 1):
            raise InvalidArgument(f"{name} must be a number from 0 to 1")
    if draft.ttl is not None:
        whole = max(1, int(draft.ttl)) if draft.restarts and 0 < draft.ttl < math.inf else draft.ttl
        check_whole(whole, what="ttl (in seconds)", least=1, most=MAX_TTL_SECONDS)
    if draft.pinned is not None:
        check_switch(draft.pinned, what="pinned")
    if draft.source is not None:
        _check_source(draft.source)
    if draft.outcome not in (None, "success", "failure"):
        raise InvalidArgument("outcome must be 'success' or 'failure'")
    return replace(
        draft,
        said_at=None if draft.said_at is None else _moment(draft.said_at),
        tags=None if draft.tags is None else checked_tags(draft.tags),
        links=None if draft.links is None else _checked_links(draft.links),
    )


def _moment(said_at: object) -> str:
    """The timestamp of a date or a time, in UTC if it names no zone; "" takes it back."""
    if said_at == "":
        return ""
    try:
        given = datetime.fromisoformat(said_at) if isinstance(said_at, str) else said_at
        if not isinstance(given, datetime):
            raise ValueError
        then = given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
    except (ValueError, OverflowError):
        shown = ascii(said_at[:40]) if isinstance(said_at, str) else type(said_at).__name__
        raise InvalidArgument(f"said_at must be a date or a time such as 2026-11-21T09:00:00Z, not {shown}") from None
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _checked_links(links: object) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(check_key(link) for link in listed(links, "links")))
    if len(found) > MAX_LINKS:
        raise InvalidArgument(f"{len(found)} links are more than the {MAX_LINKS} an entry may have")
    return found


def _check_source(source: object) -> None:
    if not isinstance(source, str) or not 1 <= len(source.encode(errors="replace")) <= MAX_LABEL_BYTES:
        raise InvalidArgument(f"source must be text of 1 to {MAX_LABEL_BYTES} bytes")
    check_text(source)
