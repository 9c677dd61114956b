"""The pack: copies of many records in a few objects of the mirror, so that a cold start costs a few requests.

It is derived, stored under ``.state/pack/``, and deleting it loses nothing. An index names the parts; a part holds
whole records and is named by the SHA-256 of its bytes.

The rules this file guards: a packed copy counts only while the mirror lists its key with the packed version; a pack
that is damaged, incomplete or forged is not used, which only costs time; and concurrent writers leave one whole pack,
or one that is detectably broken.
"""

from __future__ import annotations

import hashlib
import logging
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.json import decode as from_json

from memfiles.errors import CopyRefused, MirrorConflict, MirrorUnavailable
from memfiles.records import to_json
from memfiles.sync.mirror import ABSENT, Mirror, Stored, equals, in_parallel, is_key

if TYPE_CHECKING:
    from memfiles.sync.ledger import Ledger
    from memfiles.sync.replica import Replica

FOLDER = ".state/pack/"
INDEX = FOLDER + "index.json"
_PART = FOLDER + "{}.part"
PART_MAX_BYTES = 2 * 1024 * 1024
RECORD_MAX_BYTES = 256 * 1024  # larger ones gain nothing from a pack
PARTS_MAX = 4096
INDEX_MAX_BYTES = 1024 * 1024
PARTS_AT_ONCE = 4  # with 2 MiB each, at 1 MB/s something arrives every 8 s
FEWEST_RECORDS = 200  # below, single requests are as quick
_STALE_SHARE = 0.1
_FORMAT = "memfiles-pack/1"
_MAGIC = b"memfiles-pack/1\n"
_LENGTHS = struct.Struct("<HHI")  # of key, version and body
_FIELD_MAX = 2**16 - 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEX_DIGESTS = {32: "md5", 64: "sha256"}
_log = logging.getLogger("memfiles.mirror")


class PackDamaged(Exception):
    """The pack must not be used; the message says why."""


def is_pack_stale(replica: Replica, ledger: Ledger) -> bool:
    """Whether there are many records, and a tenth of them changed since the last pack."""
    count = len(replica.listing.paths())
    return count >= FEWEST_RECORDS and ledger.meta.state().unpacked >= _STALE_SHARE * count


def refresh_pack(replica: Replica, mirror: Mirror, ledger: Ledger) -> None:
    """Write a pack of the copies that the mirror holds, as far as known. ``MirrorUnavailable``.

    If a record was redacted meanwhile, here or elsewhere, the pack is removed: it may hold redacted text.
    """
    before, wanted = ledger.meta.state(), set(replica.listing.paths())
    listed = dict(mirror.list())
    copies = ((path, it) for path, it in ledger.copies() if path in wanted and listed.get(path) == it.version)
    with suppress(CopyRefused):  # a pack that does not verify stays as it is
        write_pack(mirror, copies)
    ledger.meta.packed(before.unpacked, redactions=before.redactions)  # if removing it fails, the next push removes it
    if ledger.meta.state().redactions != before.redactions:
        remove_pack(mirror)


def read_pack(mirror: Mirror, *, listed: Mapping[str, str]) -> Iterator[tuple[str, Stored]]:
    """Each packed record that is still current in the mirror, once, as the parts arrive; nothing without a pack.

    ``listed`` is the mirror's present listing. A damaged pack ends the iteration early with a warning.
    """
    if INDEX not in listed:
        return
    given: set[str] = set()
    try:
        for key, stored in _records(mirror):
            if listed.get(key) == stored.version and key not in given:
                given.add(key)
                yield key, stored
    except (PackDamaged, MirrorUnavailable) as error:
        _log.warning("stopped using the mirror's pack: %s", error)


def write_pack(mirror: Mirror, records: Iterable[tuple[str, Stored]]) -> bool:
    """Replace the pack with these records, as the mirror holds them; False if another writer was faster.

    After a kill between any two steps the index still names whole parts; the next write removes unnamed ones.
    """
    old = mirror.get(INDEX)
    before = [key for key, _ in mirror.list(FOLDER)]
    parts: list[str] = []
    for data in encode_parts((key, stored) for key, stored in records if not key.startswith(FOLDER)):
        if len(parts) < PARTS_MAX:
            parts.append(part_key(data))
            mirror.put(parts[-1], data)  # 1 not named by any index yet
    try:
        mirror.put(INDEX, encode_index(parts), when=equals(old.version) if old else ABSENT)  # 2 the pack is this one
    except MirrorConflict:
        return False
    for key in before:  # 3 parts added meanwhile stay: another writer is about to name them
        if key not in parts and key != INDEX:
            mirror.delete(key)
    return True


def remove_pack(mirror: Mirror) -> None:
    """Delete the pack and everything else under ``.state/pack/``; a missing pack is not an error."""
    there = [key for key, _ in mirror.list(FOLDER)]
    if INDEX in there:
        mirror.delete(INDEX)
    for key in there:
        with suppress(MirrorConflict):
            mirror.delete(key)


def part_key(data: bytes) -> str:
    """The key of a part with these bytes."""
    return _PART.format(hashlib.sha256(data).hexdigest())


def encode_index(parts: Sequence[str]) -> bytes:
    """The index that names the parts at these keys."""
    return to_json({"format": _FORMAT, "parts": [part.removeprefix(FOLDER).partition(".")[0] for part in parts]})


def decode_index(data: bytes) -> list[str]:
    """The keys of the parts, in order."""
    if len(data) > INDEX_MAX_BYTES:
        raise PackDamaged(f"its index has {len(data)} bytes")
    try:
        fields = from_json(data)
    except (ValueError, RecursionError) as error:
        raise PackDamaged(f"its index is not JSON: {error}") from None
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
        raise PackDamaged("its index has another format")
    digests = fields.get("parts")
    if not isinstance(digests, list) or len(digests) > PARTS_MAX:
        raise PackDamaged("its index lists no parts, or too many")
    if not all(isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in digests):
        raise PackDamaged("its index names something that is not a part")
    return list(dict.fromkeys(map(_PART.format, digests)))


def encode_parts(records: Iterable[tuple[str, Stored]]) -> Iterator[bytes]:
    """The records in as few parts as the limits allow; records that are too large for a pack are left out."""
    part = bytearray(_MAGIC)
    for key, stored in records:
        name, version = key.encode(), stored.version.encode()
        if len(stored.body) > RECORD_MAX_BYTES or max(len(name), len(version)) > _FIELD_MAX:
            continue
        entry = _LENGTHS.pack(len(name), len(version), len(stored.body)) + name + version + stored.body
        if len(part) + len(entry) > PART_MAX_BYTES:
            yield bytes(part)
            part = bytearray(_MAGIC)
        part += entry
    if len(part) > len(_MAGIC):
        yield bytes(part)


def decode_part(key: str, data: bytes) -> list[tuple[str, Stored]]:
    """The records of the part at ``key``, or ``PackDamaged``. Only a listing tells whether they are current.

    Most stores make versions of digests (S3: MD5); then a record whose version is another digest is left out. If no
    version of the part is the digest of its record, the store makes them in another way.
    """
    if len(data) > PART_MAX_BYTES:
        raise PackDamaged(f"{key} has {len(data)} bytes")
    if part_key(data) != key or not data.startswith(_MAGIC):
        raise PackDamaged(f"{key} has bytes that do not match its name")
    try:
        records = list(_decode_records(data))
    except (struct.error, UnicodeDecodeError) as error:
        raise PackDamaged(f"{key} cannot be read: {error}") from None
    return [(name, stored) for name, stored in records if _is_own_digest(stored)] or records


def _records(mirror: Mirror) -> Iterator[tuple[str, Stored]]:
    index = mirror.get(INDEX)
    parts = decode_index(index.body) if index else []
    for key, answer in in_parallel(mirror.get, parts, threads=PARTS_AT_ONCE):
        if isinstance(answer, MirrorUnavailable):
            raise answer
        if answer is None:
            raise PackDamaged(f"{key} is missing")
        yield from decode_part(key, answer.body)


def _decode_records(data: bytes) -> Iterator[tuple[str, Stored]]:
    offset = len(_MAGIC)
    while offset < len(data):
        key_size, version_size, body_size = _LENGTHS.unpack_from(data, offset)
        version_at = offset + _LENGTHS.size + key_size
        body_at = version_at + version_size
        offset = body_at + body_size
        if offset > len(data):
            raise struct.error("it ends within a record")
        key = data[version_at - key_size : version_at].decode()
        if is_key(key):
            yield key, Stored(data[body_at:offset], data[version_at:body_at].decode())


def _is_own_digest(stored: Stored) -> bool:
    kind = _HEX_DIGESTS.get(len(stored.version))
    return kind is not None and hashlib.new(kind, stored.body, usedforsecurity=False).hexdigest() == stored.version
