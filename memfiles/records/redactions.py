"""Pieces, the keyed digests of redacted texts, and the cleaning that takes these texts out of a content.

The rules this file guards: a piece names a text without holding it, so that another copy of the record can lose the
same text; cleaning is deterministic, and leaves nothing of the text whole; and the marker ``[redacted]`` is not text:
no piece is found inside it.
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated

from msgspec import Meta, Struct

from memfiles.records.keys import matching

MARKER = "[redacted]"
MAX_PIECES = 256
ALIKE_MIN = 4  # characters or bytes that a text and another one in its place have in common, if not by chance
NONCE_BYTES = 24
_MARKER = MARKER.encode()
_ID_BYTES = 8


class Piece(Struct, frozen=True, gc=False):
    """One redacted text: its size in UTF-8 bytes and its HMAC-SHA-256 under ``key``; never the text.

    ``id`` is random: a copy that lacks it was written without knowing of this redaction. ``hint`` are bits of the
    text's first bytes, by which a scan finds the places worth a digest; see ``_shape``.
    """

    id: Annotated[str, matching(r"^[0-9a-f]{16}$")]
    key: Annotated[str, matching(r"^[0-9a-f]{32}$")]
    size: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    hint: Annotated[int, Meta(ge=0, lt=2**24)]
    mac: Annotated[str, matching(r"^[0-9a-f]{64}$")]


def piece_of(text: bytes, *, known: Sequence[Piece], nonce: bytes) -> Piece:
    """The piece of a text that is redacted now; ``nonce`` are random bytes.

    It has the key of the ``known`` pieces of the record, so that a scan translates a content once.
    """
    key = min((piece.key for piece in known), default=nonce[_ID_BYTES:NONCE_BYTES].hex())
    width, count = _shape(len(text))
    codes = text[:count].translate(_table(key, width))
    hint = sum(code << index * width for index, code in enumerate(codes))
    return Piece(nonce[:_ID_BYTES].hex(), key, len(text), hint, _mac(key, text))


def united_pieces(*groups: Iterable[Piece]) -> tuple[Piece, ...]:
    """All of these pieces, each once, in the order of their ids."""
    return tuple(sorted({piece.id: piece for group in groups for piece in group}.values(), key=lambda it: it.id))


def lacking(known: Iterable[Piece], others: Iterable[Piece]) -> tuple[Piece, ...]:
    """The pieces among ``others`` that are not ``known``."""
    ids = {piece.id for piece in known}
    return tuple(piece for piece in others if piece.id not in ids)


def reveal(pieces: Iterable[Piece], texts: Iterable[bytes]) -> dict[Piece, bytes]:
    """The text of each piece that occurs in one of ``texts``."""
    found: dict[Piece, bytes] = {}
    missing = list(pieces)
    for text in texts:
        coded: dict[tuple[str, int], bytes] = {}
        for piece in missing:
            place = (piece.key, _shape(piece.size)[0])
            if place not in coded:
                coded[place] = _coded(text.translate(_table(*place)), place[1])
            if part := _find(piece, text, coded[place]):
                found[piece] = part
        missing = [piece for piece in missing if piece not in found]
    return found


class Fragments(Struct, frozen=True):
    """The parts of one redacted text that later changes left: their places, and the marker for the first of them."""

    spans: tuple[tuple[int, int], ...]
    put: bytes


class Cleaner:
    """Takes texts out of contents, the longest first."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts = sorted(set(texts), key=lambda text: (-len(text), text))

    def __call__(self, content: bytes, fragments: Sequence[Fragments] = ()) -> bytes:
        """Remove the fragments and the texts, also where they overlap, and again if that joins parts into another."""
        parts = [*fragments, *(self._whole(content) if fragments or len(self._texts) > 1 else ())]
        before, content = None, _without_fragments(content, parts) if fragments or _overlap(parts) else content
        while content != before:
            before = content
            for text in self._texts:
                content = _without(content, text)
        return content

    def count(self, content: bytes) -> int:
        """How often the texts stand in the content."""
        return sum(1 for text in self._texts for _ in _spans(content, text))

    def carried(
        self,
        fragments: Sequence[Fragments],
        before: bytes,
        after: bytes,
        splice: tuple[int, int, int],
        *,
        in_lines: bool = False,
    ) -> list[Fragments]:
        """The fragments that a change leaves of the texts in ``before`` and of the ``fragments`` already there.

        ``splice`` is the change: where, how many bytes it removes, and how many it inserts. A text that it does not
        touch is found again in the content after it. ``in_lines``: next to the change only whole lines are left.
        """
        near = self._whole(before, splice[0], splice[0] + splice[1])
        touched = [each for each in near if _is_cut(before, after, splice, each.spans[0])]
        moves = (_surviving_spans(before, each.spans, splice, in_lines=in_lines) for each in (*fragments, *touched))
        moved = (Fragments(tuple(spans), each.put) for each, spans in zip((*fragments, *touched), moves, strict=True))
        return [each for each in moved if each.spans]

    def is_near(self, content: bytes, start: int, end: int) -> bool:
        """Whether one of the texts is between these places, or reaches into what is there."""
        return any(True for _ in self._whole(content, start, end))

    def _whole(self, content: bytes, start: int = 0, end: int | None = None) -> Iterator[Fragments]:
        for text in self._texts:
            low = max(0, start - len(text) - len(_MARKER))
            high = len(content) if end is None else end + len(text) + len(_MARKER)
            for at, to in _spans(content[low:high], text):
                yield Fragments(((low + at, low + to),), _replacement(text))


def _without_fragments(content: bytes, fragments: Sequence[Fragments]) -> bytes:
    places = sorted((*span, each.put * (not at)) for each in fragments for at, span in enumerate(each.spans))
    parts, done = [], 0
    for start, end, put in places:
        parts += [content[done:start], put * (start >= done)]
        done = max(done, end)
    return b"".join([*parts, content[done:]])


def _overlap(parts: Iterable[Fragments]) -> bool:
    spans = sorted(span for each in parts for span in each.spans)
    return any(one[1] > other[0] for one, other in pairwise(spans))


def _replacement(text: bytes) -> bytes:
    """The replacement for a text: the marker, or nothing if the marker contains the text."""
    return b"" if text in _MARKER else _MARKER


def _spans(content: bytes, text: bytes) -> Iterator[tuple[int, int]]:
    """The spans of a text outside the markers; they do not overlap."""
    at = content.find(text)
    while at >= 0:
        end = at + len(text)
        marker = content.find(_MARKER, max(0, end - len(_MARKER)), at + len(_MARKER)) if text in _MARKER else -1
        if marker >= 0 and text != _MARKER:
            end = marker + len(_MARKER)
        else:
            yield at, end
        at = content.find(text, end)


def _without(content: bytes, text: bytes) -> bytes:
    """The content without this text; removing it may have put it together again.

    Where a text begins or ends inside a marker, both go: half a marker is not one.
    """
    put = _replacement(text)
    if put and _MARKER not in content:
        return content.replace(text, put)
    parts, done = [], 0
    for start, end in _spans(content, text):
        left = content.find(_MARKER, max(done, start - len(_MARKER) + 1), start + len(_MARKER) - 1)
        right = content.find(_MARKER, max(start, end - len(_MARKER) + 1), end + len(_MARKER) - 1)
        if start < done:
            continue  # it went with the marker that the one before shared
        parts += [content[done : left if left >= 0 else start], put if left < 0 and right < 0 else b""]
        done = right + len(_MARKER) if right >= 0 else end
    return b"".join([*parts, content[done:]])


def _is_cut(before: bytes, after: bytes, splice: tuple[int, int, int], span: tuple[int, int]) -> bool:
    """Whether a change leaves only part of the span, under every equivalent splice.

    To remove "ab" from "abab|a" is to remove "ba" one byte later.
    """
    (at, removed, inserted), (start, end) = splice, span
    if at >= end or at + removed <= start or (at <= start and at + removed >= end):
        return False
    text, length = (before, removed) if removed else (after, inserted)
    others = span if inserted else (start if at > start else end - removed,)
    if (removed and inserted) or (removed and removed < end - start):
        return True
    places = (sorted((at, other)) for other in others)
    return not any(text[low:high] == text[low + length : high + length] for low, high in places)


def _surviving_spans(
    before: bytes, spans: Iterable[tuple[int, int]], splice: tuple[int, int, int], *, in_lines: bool
) -> Iterator[tuple[int, int]]:
    """The parts of these spans in ``before`` that a change leaves, at their places after it.

    A few bytes next to what it replaced are alike by chance, as the last letter of two words: they are no part of them.
    """
    at, removed, inserted = splice
    for start, end in spans:
        low, high = min(end, at), max(start, at + removed)
        is_replaced = removed and inserted and start < high and low < end
        least = ALIKE_MIN if is_replaced and not in_lines else 1
        if in_lines and start < at < end:
            low = before.rfind(b"\n", start, low) + 1
        if in_lines and start < at + removed < end:
            high = before.find(b"\n", high - 1, end) + 1 or end
        if low - start >= least:
            yield start, low
        if end - high >= least:
            yield high + inserted - removed, end + inserted - removed


def _find(piece: Piece, text: bytes, coded: bytes) -> bytes | None:
    """The piece's text if it is in ``text``, which is given ``coded`` as well."""
    width, count = _shape(piece.size)
    codes = bytes(piece.hint >> index * width & (1 << width) - 1 for index in range(count))
    needle, wrong = _coded(codes, width)[: count - 8 // width + 1], b""
    at = coded.find(needle)
    while at >= 0:
        part = text[at : at + piece.size]
        if part != wrong and len(part) == piece.size and hmac.compare_digest(_mac(piece.key, part), piece.mac):
            return part
        wrong, at = part, coded.find(needle, at + 1)
    return None


def _shape(size: int) -> tuple[int, int]:
    """The bits that a hint has of each byte of a text of this size, and of how many bytes it has them.

    A hint reveals at most 24 bits, one bit per byte for long texts, because every revealed bit makes the text easier to
    guess. It needs about 16 bits; with fewer, most time goes into digests of wrong places.
    """
    width = 1 if size >= 24 else 2 if size >= 8 else 4 if size >= 4 else 8
    return width, min(size, {1: 24, 2: 8, 4: 4, 8: 3}[width])


def _coded(codes: bytes, width: int) -> bytes:
    """At each place the codes from there on, as many as fit a byte: ``find`` is quick where bytes have many values."""
    number = coded = int.from_bytes(codes, "little")
    for index in range(1, 8 // width):
        coded |= number >> 8 * index << width * index
    return coded.to_bytes(len(codes), "little")


@lru_cache(maxsize=64)
def _table(key: str, width: int) -> bytes:
    """For ``bytes.translate``: the code of every byte, ``width`` bits of a digest under the key."""
    seed = bytes.fromhex(key)
    codes = b"".join(hashlib.sha256(seed + bytes([number])).digest() for number in range(8))
    return bytes(code & (1 << width) - 1 for code in codes)


def _mac(key: str, text: bytes) -> str:
    return hmac.digest(bytes.fromhex(key), text, "sha256").hex()
