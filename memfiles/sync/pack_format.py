"""The bytes of a pack: an index that names its parts, and parts with whole records, each named by its own digest.

The rule this file guards: what is read back is what was written, or nothing. A part counts only under the SHA-256
of its bytes; an index or a part that is not entirely as described here is ``PackDamaged``.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator, Sequence

from pydantic_core import from_json, to_json

from memfiles.sync.mirror import Stored, is_key

FOLDER = ".state/pack/"
INDEX = FOLDER + "index.json"
PART_MAX_BYTES = 2 * 1024 * 1024
RECORD_MAX_BYTES = 256 * 1024  # larger ones gain nothing from a pack
PARTS_MAX = 4096
INDEX_MAX_BYTES = 1024 * 1024
_FORMAT = "memfiles-pack/1"
_MAGIC = b"memfiles-pack/1\n"
_ENTRY = struct.Struct("<HHI")  # lengths of key, version and body
_FIELD_MAX = 2**16 - 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEX_DIGESTS = {32: "md5", 64: "sha256"}


class PackDamaged(Exception):
    """The pack is not to be used; the message says why."""


def part_key(data: bytes) -> str:
    """Where a part with these bytes lies."""
    return _key_of(hashlib.sha256(data).hexdigest())


def encode_index(parts: Sequence[str]) -> bytes:
    """The index that names the parts at these keys."""
    return to_json({"format": _FORMAT, "parts": [part.removeprefix(FOLDER).partition(".")[0] for part in parts]})


def decode_index(data: bytes) -> list[str]:
    """The keys of the parts, in order."""
    if len(data) > INDEX_MAX_BYTES:
        raise PackDamaged(f"its index has {len(data)} bytes")
    try:
        fields = from_json(data)
    except ValueError as error:
        raise PackDamaged(f"its index is not JSON: {error}") from None
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
        raise PackDamaged("its index has another format")
    digests = fields.get("parts")
    if not isinstance(digests, list) or len(digests) > PARTS_MAX:
        raise PackDamaged("its index lists no parts, or too many")
    if not all(isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in digests):
        raise PackDamaged("its index names something that is no part")
    return list(dict.fromkeys(_key_of(digest) for digest in digests))


def encode_parts(records: Iterable[tuple[str, Stored]]) -> Iterator[bytes]:
    """The records in as few parts as the limits allow; what does not fit into a pack is left out."""
    part = bytearray(_MAGIC)
    for key, stored in records:
        entry = _encode_entry(key.encode(), stored.version.encode(), stored.body)
        if entry is None:
            continue
        if len(part) + len(entry) > PART_MAX_BYTES:
            yield bytes(part)
            part = bytearray(_MAGIC)
        part += entry
    if len(part) > len(_MAGIC):
        yield bytes(part)


def decode_part(key: str, data: bytes) -> list[tuple[str, Stored]]:
    """The records of the part at ``key``. Whether they are still those of the mirror, its listing says."""
    if len(data) > PART_MAX_BYTES:
        raise PackDamaged(f"{key} has {len(data)} bytes")
    if part_key(data) != key or not data.startswith(_MAGIC):
        raise PackDamaged(f"{key} has bytes that are not those of a part of this name")
    try:
        return _believable(list(_decode_entries(data)))
    except (struct.error, UnicodeDecodeError) as error:
        raise PackDamaged(f"{key} cannot be read: {error}") from None


def _key_of(digest: str) -> str:
    return f"{FOLDER}{digest}.part"


def _encode_entry(key: bytes, version: bytes, body: bytes) -> bytes | None:
    if len(body) > RECORD_MAX_BYTES or max(len(key), len(version)) > _FIELD_MAX:
        return None
    return b"".join([_ENTRY.pack(len(key), len(version), len(body)), key, version, body])


def _decode_entries(data: bytes) -> Iterator[tuple[str, Stored]]:
    offset = len(_MAGIC)
    while offset < len(data):
        key_size, version_size, body_size = _ENTRY.unpack_from(data, offset)
        version_at = offset + _ENTRY.size + key_size
        body_at = version_at + version_size
        offset = body_at + body_size
        if offset > len(data):
            raise struct.error("it ends within a record")
        key = data[version_at - key_size : version_at].decode()
        if is_key(key):
            yield key, Stored(data[body_at:offset], data[version_at:body_at].decode())


def _believable(records: list[tuple[str, Stored]]) -> list[tuple[str, Stored]]:
    """The records without those whose version is not the digest of their bytes, where others show that it should be.

    Most stores make versions of digests (S3: MD5). Where no version is one, the store makes them otherwise.
    """
    doubtful = {key for key, stored in records if not _is_own_digest(stored)}
    return records if len(doubtful) == len(records) else [pair for pair in records if pair[0] not in doubtful]


def _is_own_digest(stored: Stored) -> bool:
    kind = _HEX_DIGESTS.get(len(stored.version))
    return kind is not None and hashlib.new(kind, stored.body, usedforsecurity=False).hexdigest() == stored.version
