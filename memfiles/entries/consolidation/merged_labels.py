"""What one entry lends to another that it gives way to, and that it goes back when either is asked for.

The rule this file guards: a label that an entry has only of others is known as theirs, so that it goes when they are
forgotten and when the plan is taken back, and what was its own before stays in its order. Pure functions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from memfiles.entries.consolidation.folding import united
from memfiles.records.entry import MAX_SOURCES, Entry, Merged


def take_over(survivor: Entry, retired: Sequence[Entry], *, tags: tuple[str, ...], links: tuple[str, ...]) -> Entry:
    """The survivor with these labels, its own and those of the ``retired``, and with who lent which."""
    new_tags, new_links = set(tags) - set(survivor.tags), set(links) - set(survivor.links)
    lent = [
        Merged(
            each.uid,
            tuple(tag for tag in each.tags if tag in new_tags),
            tuple(link for link in each.links if link in new_links),
        )
        for each in retired
    ]
    uids = {each.uid for each in lent}
    merged = (*(each for each in survivor.merged if each.uid not in uids), *lent)[-MAX_SOURCES:]
    made_of = united([survivor.made_of, *(each.made_of for each in retired)]) if survivor.made_of else ()
    return replace(survivor, tags=tags, links=links, merged=merged, made_of=made_of[-MAX_SOURCES:])


def give_back(entry: Entry, uids: Collection[str]) -> Entry:
    """The entry without what it has of the entries of these uids alone; itself if that is nothing."""
    gone = [each for each in entry.merged if each.uid in uids]
    if not gone:
        return entry
    kept = tuple(each for each in entry.merged if each.uid not in uids)
    tags = {tag for each in gone for tag in each.tags} - {tag for each in kept for tag in each.tags}
    links = {link for each in gone for link in each.links} - {link for each in kept for link in each.links}
    return replace(
        entry,
        merged=kept,
        tags=tuple(tag for tag in entry.tags if tag not in tags),
        links=tuple(link for link in entry.links if link not in links),
    )


def stands_for(entry: Entry, uids: Collection[str]) -> bool:
    """Whether one of these gave way to the entry, which therefore says the same."""
    return any(each.uid in uids for each in entry.merged)
