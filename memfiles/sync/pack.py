"""The pack: copies of many records in a few objects of the mirror, so that a cold start costs a few requests.

It is derived, lies under ``.state/pack/``, and deleting it loses nothing. The rules this file guards: a packed copy
counts only while the mirror lists its key with the version that was packed; a pack that is damaged, half written or
made up is not used, which costs time and nothing else; and writers that meet leave one whole pack, or one that is
seen to be broken.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from memfiles.errors import MirrorConflict, MirrorUnavailable
from memfiles.sync.bulk_reads import in_parallel
from memfiles.sync.mirror import ABSENT, Mirror, Stored, equals
from memfiles.sync.pack_format import (
    FOLDER,
    INDEX,
    PARTS_MAX,
    PackDamaged,
    decode_index,
    decode_part,
    encode_index,
    encode_parts,
    part_key,
)

AT_ONCE = 4  # parts: with 2 MiB each, at 1 MB/s something arrives every 8 s
_log = logging.getLogger("memfiles.mirror")


def read_pack(mirror: Mirror, *, listed: Mapping[str, str] | None = None) -> Iterator[tuple[str, Stored]]:
    """Each record that the pack holds as the mirror has it now, once, as the parts arrive; nothing without a pack.

    ``listed`` is what the mirror lists now, if that is known already. A pack that cannot be used ends early, with a
    warning; ``MirrorUnavailable`` only if ``listed`` must be asked for.
    """
    there = dict(mirror.list()) if listed is None else listed
    if INDEX not in there:
        return
    given: set[str] = set()
    try:
        for key, stored in _records(mirror):
            if there.get(key) == stored.version and key not in given:
                given.add(key)
                yield key, stored
    except (PackDamaged, MirrorUnavailable) as error:
        _log.warning("the pack in the mirror is not used any further: %s", error)


def write_pack(mirror: Mirror, records: Iterable[tuple[str, Stored]]) -> bool:
    """Put these records, as the mirror holds them, in place of the earlier pack; False if another writer was quicker.

    Killed between any two steps, the index names whole parts; what nothing names is removed by the next write.
    """
    old = mirror.get(INDEX)
    before = [key for key, _ in mirror.list(FOLDER)]
    parts: list[str] = []
    for data in encode_parts((key, stored) for key, stored in records if not key.startswith(FOLDER)):
        if len(parts) < PARTS_MAX:
            parts.append(part_key(data))
            mirror.put(parts[-1], data)  # 1 nobody knows of it yet
    try:
        mirror.put(INDEX, encode_index(parts), when=equals(old.version) if old else ABSENT)  # 2 the pack is this one
    except MirrorConflict:
        return False
    for key in before:  # 3 not those that came meanwhile: another writer is about to name them
        if key not in parts and key != INDEX:
            mirror.delete(key)
    return True


def remove_pack(mirror: Mirror) -> None:
    """Delete the pack and whatever else lies under ``.state/pack/``; nothing there is no error."""
    there = [key for key, _ in mirror.list(FOLDER)]
    if INDEX in there:
        mirror.delete(INDEX)
    for key in there:
        with suppress(MirrorConflict):
            mirror.delete(key)


def _records(mirror: Mirror) -> Iterator[tuple[str, Stored]]:
    index = mirror.get(INDEX)
    parts = decode_index(index.body) if index else []
    for key, answer in in_parallel(mirror.get, parts, threads=AT_ONCE):
        if isinstance(answer, MirrorUnavailable):
            raise answer
        if answer is None:
            raise PackDamaged(f"{key} is not there")
        yield from decode_part(key, answer.body)
