"""Redactions: how long it takes to look for the texts of pieces in a large content that does not hold them."""

from __future__ import annotations

import os
import random
import time

from memfiles.records.redactions import NONCE_BYTES, Piece, piece_of, reveal
from tests.benchmarks.bare import show

SIZE = 8 << 20


def test_scan_8_mib() -> None:
    """One piece and 256 of a record, of 8 to 64 bytes, in words as in any notes."""
    draw = random.Random(8)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(5000)]
    content = " ".join(draw.choices(words, k=SIZE // 6)).encode()[:SIZE].ljust(SIZE)
    pieces: list[Piece] = []
    for number in range(256):
        text = " ".join(draw.choices(words, k=20))[: 8 + number % 57].upper()
        pieces.append(piece_of(text.encode(), known=pieces, nonce=os.urandom(NONCE_BYTES)))
    for count, goal in ((1, "goal < 1 s"), (256, "")):
        begun = time.process_time()
        assert {} == reveal(pieces[:count], [content])
        show(
            f"look for {count} redacted texts in 8 MiB",
            f"{(time.process_time() - begun) * 1e3:.0f} ms of one processor",
            goal,
        )
