"""The plan of a consolidation: a value that is shown before it is applied; and the notes and labels in it.

The rules this file guards:

- A plan names every entry at its revision, so that it is not applied to entries that changed since; it destroys nothing
  that it hides; and it is undone by its id, which every changed entry carries. How often an entry was read decides
  which of two equals goes, but reading it meanwhile does not outdate the plan.
- A label that an entry has only from others is recorded as theirs, so that it goes when they are forgotten or the plan
  is undone, and the entry's own labels keep their order.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from memfiles.entries.budgets import Tally
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.errors import InvalidArgument
from memfiles.records import converted
from memfiles.records.entry import GENERAL, MAX_LINKS, MAX_SOURCES, MAX_TAGS, Entry, EntryId, Merged, united_authors
from memfiles.records.graphemes import first_bytes
from memfiles.records.history import contents
from memfiles.records.keys import entry_uid
from memfiles.records.record import Revision, Timestamp, first_problem

MOST_EPISODES = 64
"""The most episodes that one note folds."""

MOST_SUMMARY_BYTES = 4096
LEAST_SUMMARY_BYTES = 64
_LEAST_LINE_BYTES = 24
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")
_CUT = "…"
FOLDED = "folded "
_SOURCES = "Sources: "
Action = Literal["merge", "fold", "evict"]
Labels = tuple[str, ...]


class PlannedEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry at the revision that a step was planned for."""

    uid: str
    key: str
    revision: Revision


class SummaryNote(Struct, frozen=True, forbid_unknown_fields=True):
    """A note that a step saves; there must be no live entry of its key. ``run`` is set if it belongs to one run alone.

    ``made_of`` are the ids of all entries that it sums up.
    """

    key: str
    content: str
    run: str = ""
    tags: Labels = ()
    links: Labels = ()
    category: str = GENERAL
    importance: float = 0.5
    confidence: float = 1.0
    expires_at: Timestamp | None = None
    made_of: Annotated[tuple[EntryId, ...], Meta(max_length=MAX_SOURCES)] = ()

    @property
    def size_bytes(self) -> int:
        """The size of its content in UTF-8 bytes."""
        return len(self.content.encode())


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One step, which happens as a whole or not at all.

    - ``merge``: the ``survivor`` gets the ``tags`` and ``links``, its own and those of the ``retired``;
    - ``fold``: the ``note`` replaces the ``retired``;
    - ``evict``: the ``retired`` are hidden.

    ``freed`` is by how much the visible entries become fewer and smaller.
    """

    action: Action
    why: str
    retired: tuple[PlannedEntry, ...] = ()
    survivor: PlannedEntry | None = None
    tags: Labels = ()
    links: Labels = ()
    note: SummaryNote | None = None
    freed: Tally = Tally()

    @property
    def state(self) -> Literal["deleted", "evicted"]:
        """The state of the retired entries afterwards, with the plan's id as the cause."""
        return "evicted" if self.action == "evict" else "deleted"

    @property
    def named(self) -> tuple[PlannedEntry, ...]:
        """All entries that must still be at their revisions."""
        return (*self.retired, *((self.survivor,) if self.survivor else ()))


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """The steps that bring the entries of one folder and level within their budget, in order of least destruction.

    ``is_enough``: whether they do.
    """

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    made_at: Timestamp
    folder: str
    level: str
    before: Tally
    after: Tally
    is_enough: bool = True
    steps: tuple[Step, ...] = ()

    @property
    def uids(self) -> tuple[str, ...]:
        """The uids to lock for applying it, sorted: named entries and notes."""
        named = {named.uid for step in self.steps for named in step.named}
        return tuple(sorted(named | {self.uid_of(step.note) for step in self.steps if step.note}))

    def uid_of(self, note: SummaryNote) -> str:
        """The uid of one of its notes."""
        return entry_uid(self.folder, self.level, note.key, note.run)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, from which ``plan_from`` makes the same plan."""
        shown: dict[str, Any] = to_builtins(self)
        return shown


def changed_since(plan: Plan, *, revision_of: Callable[[str], int | None]) -> list[str]:
    """The keys of the entries that make a plan out of date; asked under the locks of all ``plan.uids``.

    ``revision_of`` gives the revision of the live entry of a uid, None if there is none.
    """
    named = {named.uid: named for step in plan.steps for named in step.named}
    changed = [each.key for each in named.values() if revision_of(each.uid) != each.revision]
    notes = (step.note for step in plan.steps if step.note is not None)
    return [*changed, *(note.key for note in notes if revision_of(plan.uid_of(note)) is not None)]


def plan_from(document: object) -> Plan:
    """The plan in a JSON object; ``InvalidArgument`` names the place of the first problem."""
    try:
        return converted(document, Plan)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"invalid plan: {first_problem(error)}") from None


class Summariser(Protocol):
    """Sums up texts in few words; for ``memfiles.open(..., summariser=...)``."""

    def summarise(self, texts: Sequence[str], *, most_bytes: int) -> str:
        """A summary of the texts, the oldest first, of at most ``most_bytes`` in UTF-8; a longer one is cut.

        The texts are of one agent, user and level. It is called in a thread of its own, and may take long or raise: the
        default then sums up in its place. Several threads may call it.
        """


class FirstSentences:
    """Takes the first sentence of each text, with equal shares of the room; the same texts give the same summary."""

    def summarise(self, texts: Sequence[str], *, most_bytes: int) -> str:
        """One line per text; the last texts are left out if the lines would be too short."""
        shown = texts[: max(1, most_bytes // _LEAST_LINE_BYTES)]
        share = most_bytes // max(1, len(shown)) - 1
        return "\n".join(cut(f"- {first_sentence(text)}", share) for text in shown)


def first_sentence(text: str) -> str:
    """The text up to the end of its first sentence or line, on one line."""
    return " ".join(_SENTENCE_ENDS.split(text.strip(), maxsplit=1)[0].split())


def cut(text: str, most_bytes: int) -> str:
    """``text`` in at most that many bytes of UTF-8, with an ellipsis if it was cut."""
    if len(text.encode()) <= most_bytes:
        return text
    room = most_bytes - len(_CUT.encode())
    return first_bytes(text, room).rstrip() + _CUT if room >= 0 else ""


def groups_to_fold(episodes: Sequence[Entry]) -> list[list[Entry]]:
    """Episodes that belong together, of one run and thread or else of one day, those of the oldest first.

    Each at most ``MOST_EPISODES`` long and of more than one; the same whatever the order of the episodes.
    """
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for episode in sorted(episodes, key=_age):
        run, thread = episode.provenance.run or "", episode.provenance.thread or ""
        day = "" if run or thread else episode.created_at[:10]
        group = episode.run, episode.category, run, thread, day, str(episode.expires_at is None)
        groups.setdefault(group, []).append(episode)
    parts = (group[at : at + MOST_EPISODES] for group in groups.values() for at in range(0, len(group), MOST_EPISODES))
    return sorted((part for part in parts if len(part) > 1), key=lambda part: _age(part[0]))


def note_of(episodes: Sequence[Entry], summariser: Summariser) -> SummaryNote:
    """The note that replaces the episodes of one group: a summary, and their keys."""
    first, last, uids = episodes[0], episodes[-1], "".join(episode.uid for episode in episodes)
    days = dict.fromkeys((first.created_at[:10], last.created_at[:10]))
    head = f"{len(episodes)} episodes, {' to '.join(days)}:"
    sources = f"{_SOURCES}{', '.join(map(_quoted, (episode.key for episode in episodes)))}"
    room = sum(episode.size_bytes for episode in episodes) - len(f"{head}\n\n{sources}".encode())
    most = max(LEAST_SUMMARY_BYTES, min(MOST_SUMMARY_BYTES, room // 2))
    summary = cut(summariser.summarise([episode.content for episode in episodes], most_bytes=most), most)
    made_of = united_labels([*([episode.id] for episode in episodes), *(episode.made_of for episode in episodes)])
    expiries = [episode.expires_at for episode in episodes if episode.expires_at is not None]
    return SummaryNote(
        key=f"{FOLDED}{first.created_at[:10]} {hashlib.sha256(uids.encode()).hexdigest()[:12]}",
        content=f"{head}\n{summary}\n{sources}",
        run=first.run,
        tags=united_labels([episode.tags for episode in episodes])[:MAX_TAGS],
        links=united_labels([e.links for e in episodes], without=[episode.key for episode in episodes])[:MAX_LINKS],
        category=first.category,
        importance=max(episode.importance for episode in episodes),
        confidence=min(episode.confidence for episode in episodes),
        expires_at=max(expiries) if len(expiries) == len(episodes) else None,
        made_of=made_of[:MAX_SOURCES],
    )


def draft_of_note(note: SummaryNote) -> Draft:
    """The draft of a note of a plan."""
    return Draft(
        note.key, note.content, note.tags, note.category, "note", note.confidence, note.importance, links=note.links
    )


def checked_note(note: SummaryNote, rules: EntryRules) -> SummaryNote:
    """The note with the text that may be saved; errors as of ``EntryRules.check``."""
    return replace(note, content=rules.check(draft_of_note(note)).draft.content or "")


def is_made_of(note: Entry, *, ids: Collection[str], keys: Collection[str]) -> bool:
    """Whether the note was made of an entry with one of the ids, or of an episode of one of the keys.

    Its record holds the ids, whatever became of its text. Notes of early versions hold none, but some version in their
    history names the keys.
    """
    if note.made_of:
        return any(id in ids for id in note.made_of)
    if not keys or note.kind != "note" or not note.key.startswith(FOLDED):
        return False
    quoted = [_quoted(key).encode() for key in keys]
    lasts = (version.rpartition(b"\n" + _SOURCES.encode())[2] for _, version in contents(note.text))
    return any(key in last for last in lasts for key in quoted)


def united_labels(lists: Sequence[Sequence[str]], *, without: Sequence[str] = ()) -> tuple[str, ...]:
    """All labels once, in the order in which they first come."""
    return tuple(label for label in dict.fromkeys(chain.from_iterable(lists)) if label not in without)


def _quoted(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def _age(episode: Entry) -> tuple[str, int, str, str]:
    return episode.created_at, episode.provenance.ordinal, episode.key, episode.uid


def take_over(survivor: Entry, retired: Sequence[Entry], *, tags: tuple[str, ...], links: tuple[str, ...]) -> Entry:
    """The survivor with these labels, its own and those of the ``retired``, and the record of whose they are."""
    new_tags, new_links = set(tags) - set(survivor.tags), set(links) - set(survivor.links)
    taken = [
        Merged(
            each.id,
            tuple(tag for tag in each.tags if tag in new_tags),
            tuple(link for link in each.links if link in new_links),
        )
        for each in retired
    ]
    uids = {each.uid for each in taken}
    merged = (*(each for each in survivor.merged if each.uid not in uids), *taken)[-MAX_SOURCES:]
    made_of = united_labels([survivor.made_of, *(each.made_of for each in retired)]) if survivor.made_of else ()
    authors = united_authors([survivor, *retired])
    return replace(survivor, tags=tags, links=links, merged=merged, made_of=made_of[-MAX_SOURCES:], authors=authors)


def give_back(entry: Entry, ids: Collection[str]) -> Entry:
    """The entry without the labels that it has from the entries with these ids alone; itself if there are none."""
    gone = [each for each in entry.merged if each.uid in ids]
    if not gone:
        return entry
    kept = tuple(each for each in entry.merged if each.uid not in ids)

    def own(name: Literal["tags", "links"]) -> tuple[str, ...]:
        taken = set(chain.from_iterable(getattr(each, name) for each in gone))
        taken -= set(chain.from_iterable(getattr(each, name) for each in kept))
        return tuple(label for label in getattr(entry, name) if label not in taken)

    return replace(entry, merged=kept, tags=own("tags"), links=own("links"))


def stands_for(entry: Entry, ids: Collection[str]) -> bool:
    """Whether one of these was merged into the entry, which therefore holds the same content."""
    return any(each.uid in ids for each in entry.merged)
