"""A process of the exam of stores: ``python -m mirrors.testing.stores.worker WORK ARGUMENTS OPENER ...``.

It prints ``open`` once the store is open, waits for a line, does one of the works below, printing what was
acknowledged, then ``done``, and waits for a line before it closes the store.
"""

from __future__ import annotations

import json
import sys
from itertools import count

from memfiles.storage.record_store import NOTHING, ChangeSet, Records, RecordStore
from mirrors.testing.stores.place import append, next_version, open_store, put, read, remove


def number(store: RecordStore, paths: list[str]) -> None:
    """Give all these records the same number as their content, one number after another, for ever."""
    for each in count(1):
        put(store, {path: str(each) for path in paths})
        print(each)


def write(store: RecordStore, path: str, first: int, last: int) -> None:
    """Append these numbers to one record, one in a change."""
    for each in range(first, last):
        append(store, [path], str(each))
        print(each)


def spread(store: RecordStore, start: str, many: int) -> None:
    """Write this many records, one in a change."""
    for each in range(many):
        put(store, {f"{start}{each}.json": str(each)})
        print(f"{start}{each}.json")


def give(store: RecordStore, giver: str, taker: str, times: int) -> None:
    """Take one from the number in a record and add it to that in another, some times."""

    def decide(records: Records) -> tuple[None, ChangeSet]:
        texts = {giver: str(int(read(records, giver) or 0) - 1), taker: str(int(read(records, taker) or 0) + 1)}
        return None, ChangeSet([next_version(records, path, text) for path, text in texts.items()])

    for each in range(times):
        store.change([giver, taker], decide)
        print(each)


def stall(store: RecordStore, path: str) -> None:
    """Stay in the decision about a record until it is ended."""

    def decide(records: Records) -> tuple[None, ChangeSet]:
        read(records, path)
        print("deciding")
        sys.stdin.readline()
        return None, NOTHING

    store.change([path], decide)


WORKS = {"number": number, "write": write, "spread": spread, "give": give, "remove": remove, "stall": stall}

if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    work, arguments, *opener = sys.argv[1:]
    opened = open_store(*opener)
    print("open")
    sys.stdin.readline()
    WORKS[work](opened, *json.loads(arguments))  # type: ignore[operator]
    print("done")
    sys.stdin.readline()
    opened.close()
