"""Folding of episodes into one note that sums them up and names them, and merging of labels into a survivor.

The rule this file guards: a label that an entry has only from others is recorded as theirs, so that it goes when they
are forgotten or the plan is undone, and the entry's own labels keep their order. The default ``Summariser`` takes first
sentences and needs no language model. Pure functions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain
from typing import Protocol

from memfiles.entries.consolidation.plan import SummaryNote
from memfiles.records.entry import MAX_LINKS, MAX_SOURCES, MAX_TAGS, Entry, Merged
from memfiles.records.graphemes import first_bytes
from memfiles.records.history import contents

MOST_EPISODES = 64
"""The most episodes that one note folds."""

MOST_SUMMARY_BYTES = 4096
LEAST_SUMMARY_BYTES = 64
_LEAST_LINE_BYTES = 24
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")
_CUT = "…"
FOLDED = "folded "
_SOURCES = "Sources: "


class Summariser(Protocol):
    """Sums up texts in few words."""

    def summarise(self, texts: Sequence[str], *, most_bytes: int) -> str:
        """A summary of the texts, the oldest first, of at most ``most_bytes`` in UTF-8; a longer one is cut."""


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
    expiries = [episode.expires_at for episode in episodes if episode.expires_at is not None]
    return SummaryNote(
        key=f"{FOLDED}{first.created_at[:10]} {hashlib.sha256(uids.encode()).hexdigest()[:12]}",
        content=f"{head}\n{summary}\n{sources}",
        run=first.run,
        tags=united([episode.tags for episode in episodes])[:MAX_TAGS],
        links=united([e.links for e in episodes], without=[episode.key for episode in episodes])[:MAX_LINKS],
        category=first.category,
        importance=max(episode.importance for episode in episodes),
        confidence=min(episode.confidence for episode in episodes),
        expires_at=max(expiries) if len(expiries) == len(episodes) else None,
        made_of=united([*([episode.id] for episode in episodes), *(episode.made_of for episode in episodes)])[
            :MAX_SOURCES
        ],
    )


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


def united(lists: Sequence[Sequence[str]], *, without: Sequence[str] = ()) -> tuple[str, ...]:
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
    made_of = united([survivor.made_of, *(each.made_of for each in retired)]) if survivor.made_of else ()
    return replace(survivor, tags=tags, links=links, merged=merged, made_of=made_of[-MAX_SOURCES:])


def give_back(entry: Entry, ids: Collection[str]) -> Entry:
    """The entry without the labels that it has from the entries with these ids alone; itself if there are none."""
    gone = [each for each in entry.merged if each.uid in ids]
    if not gone:
        return entry
    kept = tuple(each for each in entry.merged if each.uid not in ids)
    tags = {tag for each in gone for tag in each.tags} - {tag for each in kept for tag in each.tags}
    links = {link for each in gone for link in each.links} - {link for each in kept for link in each.links}
    return replace(
        entry,
        merged=kept,
        tags=tuple(tag for tag in entry.tags if tag not in tags),
        links=tuple(link for link in entry.links if link not in links),
    )


def stands_for(entry: Entry, ids: Collection[str]) -> bool:
    """Whether one of these was merged into the entry, which therefore holds the same content."""
    return any(each.uid in ids for each in entry.merged)
