"""Folding: many episodes into one note that says what was in them and names them.

What a note says of its episodes is a ``Summariser``'s; the one here takes first sentences and needs no language model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Protocol

from memfiles.entries.consolidation.plan import SummaryNote
from memfiles.records.entry import MAX_LINKS, MAX_SOURCES, MAX_TAGS, Entry
from memfiles.records.graphemes import first_bytes
from memfiles.records.history import contents

MOST_EPISODES = 64
"""How many episodes one note takes up."""

MOST_SUMMARY_BYTES = 4096
LEAST_SUMMARY_BYTES = 64
_LEAST_LINE_BYTES = 24
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")
_CUT = "…"
FOLDED = "folded "
_SOURCES = "Sources: "


class Summariser(Protocol):
    """Says in few words what is in texts."""

    def summarise(self, texts: Sequence[str], *, most_bytes: int) -> str:
        """What is in the texts, the oldest first, in at most ``most_bytes`` of UTF-8; what is longer is cut."""


class FirstSentences:
    """The first sentence of each text, each with the same share of the room; the same texts give the same summary."""

    def summarise(self, texts: Sequence[str], *, most_bytes: int) -> str:
        """A line a text; lines that would be too short to say anything are left out from the end."""
        shown = texts[: max(1, most_bytes // _LEAST_LINE_BYTES)]
        share = most_bytes // max(1, len(shown)) - 1
        return "\n".join(cut(f"- {first_sentence(text)}", share) for text in shown)


def first_sentence(text: str) -> str:
    """The text up to the end of its first sentence or line, on one line."""
    return " ".join(_SENTENCE_ENDS.split(text.strip(), maxsplit=1)[0].split())


def cut(text: str, most_bytes: int) -> str:
    """``text`` in at most that many bytes of UTF-8, with an ellipsis where something is missing."""
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
        groups.setdefault(_belongs_to(episode), []).append(episode)
    parts = (group[at : at + MOST_EPISODES] for group in groups.values() for at in range(0, len(group), MOST_EPISODES))
    return sorted((part for part in parts if len(part) > 1), key=lambda part: _age(part[0]))


def note_of(episodes: Sequence[Entry], summariser: Summariser) -> SummaryNote:
    """The note that stands for these episodes, of one group: what was in them, and which they are."""
    first, last = episodes[0], episodes[-1]
    days = dict.fromkeys((first.created_at[:10], last.created_at[:10]))
    head = f"{len(episodes)} episodes, {' to '.join(days)}:"
    sources = f"{_SOURCES}{', '.join(map(_quoted, (episode.key for episode in episodes)))}"
    room = sum(episode.size_bytes for episode in episodes) - len(f"{head}\n\n{sources}".encode())
    most = max(LEAST_SUMMARY_BYTES, min(MOST_SUMMARY_BYTES, room // 2))
    summary = cut(summariser.summarise([episode.content for episode in episodes], most_bytes=most), most)
    return SummaryNote(
        key=f"{FOLDED}{first.created_at[:10]} {_mark(episodes)}",
        content=f"{head}\n{summary}\n{sources}",
        run=first.run,
        tags=united([episode.tags for episode in episodes])[:MAX_TAGS],
        links=united([e.links for e in episodes], without=[episode.key for episode in episodes])[:MAX_LINKS],
        category=first.category,
        importance=max(episode.importance for episode in episodes),
        confidence=min(episode.confidence for episode in episodes),
        expires_at=_last_expiry(episodes),
        made_of=united([*([episode.uid] for episode in episodes), *(episode.made_of for episode in episodes)])[
            :MAX_SOURCES
        ],
    )


def is_made_of(note: Entry, *, uids: Collection[str], keys: Collection[str]) -> bool:
    """Whether the note says what was in an entry of one of the uids, or in an episode of one of the keys.

    Its record tells that by uids, whatever became of its text; one from before records did so names the keys in some
    version that its history still holds.
    """
    if note.made_of:
        return any(uid in uids for uid in note.made_of)
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


def _belongs_to(episode: Entry) -> tuple[str, ...]:
    run, thread = episode.provenance.run or "", episode.provenance.thread or ""
    day = "" if run or thread else episode.created_at[:10]
    return episode.run, episode.category, run, thread, day, str(episode.expires_at is None)


def _last_expiry(episodes: Sequence[Entry]) -> str | None:
    """When the last of them would have expired; never, if one would not."""
    moments = [episode.expires_at for episode in episodes if episode.expires_at is not None]
    return max(moments) if len(moments) == len(episodes) else None


def _mark(episodes: Sequence[Entry]) -> str:
    """What tells the note of these episodes from that of others."""
    return hashlib.sha256("".join(episode.uid for episode in episodes).encode()).hexdigest()[:12]
