"""What someone wants to save, checked: the only way by which text gets into an entry.

The rule this file guards: everything that will be stored passed the secrets gate and fits the record format, and a
refusal says what is wrong and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from memfiles.errors import InvalidArgument, SizeExceeded
from memfiles.records.entry import KINDS, MAX_ENTRY_BYTES, MAX_LABEL_BYTES, MAX_LINKS, MAX_TAGS, Kind
from memfiles.records.keys import NAME_MAX, check_key, check_name, check_whole
from memfiles.records.record import check_text
from memfiles.secrets.gate import Policy, Scanner, gate, may_hold_secrets

MAX_TAG_BYTES = 64
MAX_TTL_SECONDS = 10 * 365 * 86400


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry as somebody wants it: None is "not said", which keeps what there is, or else the usual.

    ``ttl`` is in seconds from the last change of the content. ``outcome`` counts a success or a failure of what the
    entry advises.
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
    ttl: int | None = None
    outcome: Literal["success", "failure"] | None = None
    source: str | None = None


_FACETS: tuple[tuple[str, Callable[[Any], Any] | None], ...] = (
    *(("category", None), ("kind", None), ("confidence", float), ("importance", float), ("pinned", None)),
    *(("tags", tuple), ("links", tuple)),
)
"""What a draft may say of an entry, and what that is kept as where it may come as something else."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A draft that may be stored, and what its writer is to be told."""

    draft: Draft
    warnings: tuple[str, ...] = ()


def facets_of(draft: Draft) -> dict[str, Any]:
    """What the draft says of an entry, apart from its content."""
    said: dict[str, Any] = {}
    for name, kept in _FACETS:
        if (value := getattr(draft, name)) is not None:
            said[name] = value if kept is None else kept(value)
    return said


def check_draft(draft: Draft, *, secrets: Policy, allow: Sequence[str] = (), scan: Scanner | None = None) -> Checked:
    """The draft as it may be stored; ``InvalidArgument``, ``SizeExceeded`` or ``SecretRefused`` for what may not."""
    check_key(draft.key)
    gate_labels([each for each in (draft.category, draft.source) if isinstance(each, str)], secrets, allow)
    if draft.category is not None:
        check_category(draft.category)
    if draft.kind is not None and draft.kind not in KINDS:
        raise InvalidArgument(f"kind {str(draft.kind)[:40]!r} is not known: use one of {', '.join(KINDS)}")
    for name in ("confidence", "importance"):
        _check_share(getattr(draft, name), what=name)
    if draft.ttl is not None:
        check_whole(draft.ttl, what="ttl (in seconds)", least=1, most=MAX_TTL_SECONDS)
    if draft.pinned is not None:
        check_switch(draft.pinned, what="pinned")
    if draft.source is not None:
        _check_source(draft.source)
    if draft.outcome not in (None, "success", "failure"):
        raise InvalidArgument("outcome must be 'success' or 'failure'")
    tags = None if draft.tags is None else checked_tags(draft.tags)
    links = None if draft.links is None else _unique(check_key(link) for link in listed(draft.links, "links"))
    if links is not None and len(links) > MAX_LINKS:
        raise InvalidArgument(f"{len(links)} links are more than the {MAX_LINKS} an entry may have")
    gate_labels([draft.key, *(tags or ()), *(links or ())], secrets, allow)
    if draft.content is None:
        return Checked(replace(draft, tags=tags, links=links))
    check_text(draft.content)
    gated = gate(draft.content, policy=secrets, allow=allow, scan=scan)
    if (size := len(gated.text.encode())) > MAX_ENTRY_BYTES:
        raise SizeExceeded(
            f"the content is {size} bytes, over the {MAX_ENTRY_BYTES} an entry may have: save the gist, or several "
            f"entries under keys of their own"
        )
    return Checked(replace(draft, content=gated.text, tags=tags, links=links), gated.warnings)


def drafts_of(said: Iterable[Draft | Mapping[str, Any]]) -> list[Draft]:
    """The drafts out of a list of them, or of objects with their fields."""
    if isinstance(said, (str, bytes, Mapping, Draft)) or not isinstance(said, Iterable):
        raise InvalidArgument(f"entries to save are a list of objects, not {type(said).__name__}")
    return [draft_of(each) for each in said]


def draft_of(said: Draft | Mapping[str, Any]) -> Draft:
    """A draft out of one or of an object with its fields."""
    if isinstance(said, Draft):
        return said
    try:
        return Draft(**said)
    except TypeError as error:
        raise InvalidArgument(
            f"an entry to save is an object with key, content and what else a save takes: {error}"
        ) from None


def checked_tags(tags: object) -> tuple[str, ...]:
    """Tags without repetitions, in their order; ``InvalidArgument`` for what is none, or too many."""
    found = _unique(listed(tags, "tags"))
    for tag in found:
        check_text(tag)
        size = len(tag.encode())
        if not tag.strip() or size > MAX_TAG_BYTES or not tag.isprintable():
            raise InvalidArgument(f"a tag must have 1 to {MAX_TAG_BYTES} printable bytes and not be blank")
    if len(found) > MAX_TAGS:
        raise InvalidArgument(f"{len(found)} tags are more than the {MAX_TAGS} an entry may have")
    return found


def check_switch(value: object, *, what: str) -> None:
    """Refuse what is neither True nor False: "false" would count as true."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} must be True or False")


def listed(values: object, what: str) -> list[str]:
    """The texts in a list of them; a single text is not taken for a list of its letters. ``InvalidArgument``."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidArgument(f"{what} must be a list of texts")
    found = list(values)
    if not all(isinstance(value, str) for value in found):
        raise InvalidArgument(f"{what} must be a list of texts")
    return found


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def check_category(category: object) -> str:
    """Return what can be the name of a category, known or not; anything else is an ``InvalidArgument``."""
    if not isinstance(category, str):
        raise InvalidArgument("category must be text")
    try:
        return check_name(category)
    except InvalidArgument:
        raise InvalidArgument(
            f"category {ascii(category[:40])} cannot be one: use 1 to {NAME_MAX} ASCII letters, digits, '_', '.' or "
            f"'-', starting with a letter, digit or '_'"
        ) from None


def gate_labels(labels: Sequence[str], secrets: Policy, allow: Sequence[str]) -> None:
    """Refuse a credential where nothing can be taken out of the middle."""
    is_clear = not labels or not may_hold_secrets("\n".join(labels))  # most often one look at all is enough
    for label in () if is_clear else labels:
        gate(label, policy="block" if secrets == "redact" else secrets, allow=allow)


def _check_source(source: object) -> None:
    if not isinstance(source, str) or not 1 <= len(source.encode(errors="replace")) <= MAX_LABEL_BYTES:
        raise InvalidArgument(f"source must be text of 1 to {MAX_LABEL_BYTES} bytes")
    check_text(source)


def _check_share(value: object, *, what: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidArgument(f"{what} must be a number from 0 to 1")
