"""The pack that makes a cold start quick: when it is worth writing anew, and with what."""

from __future__ import annotations

from collections.abc import Iterator

from memfiles.sync.ledger import Bookkeeping
from memfiles.sync.mirror import Mirror, Stored
from memfiles.sync.pack import remove_pack, write_pack
from memfiles.sync.replica import Replica

FEWEST_RECORDS = 200  # below, single requests are as quick
_STALE_SHARE = 0.1


class Packer:
    """Keeps the mirror's pack fresh enough."""

    def __init__(self, replica: Replica, *, mirror: Mirror, book: Bookkeeping) -> None:
        self._replica = replica
        self._mirror = mirror
        self._book = book

    def is_worth_it(self) -> bool:
        """Whether there are many records, and a tenth of them changed since the last pack."""
        count = len(self._replica.paths())
        return count >= FEWEST_RECORDS and self._book.unpacked() >= _STALE_SHARE * count

    def refresh(self) -> int:
        """Write the pack of the copies that the mirror holds now, as far as known; how many. ``MirrorUnavailable``.

        None is left that was begun before a redaction, here or elsewhere: the copies may hold what was taken out.
        """
        redactions = self._book.redactions()
        wanted, there = set(self._replica.paths()), dict(self._mirror.list())
        count, written = self._book.unpacked(), 0

        def copies() -> Iterator[tuple[str, Stored]]:
            nonlocal written
            for path, stored in self._book.copies():
                if path in wanted and there.get(path) == stored.version:
                    written += 1
                    yield path, stored

        write_pack(self._mirror, copies())
        if self._book.redactions() != redactions:
            remove_pack(self._mirror)
        self._book.packed(count)
        return written
