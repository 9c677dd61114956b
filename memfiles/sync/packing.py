"""The pack that makes a cold start quick: when it is worth writing anew, and with what."""

from __future__ import annotations

from memfiles.bookkeeping import Bookkeeping
from memfiles.mirror import Mirror
from memfiles.pack import write_pack
from memfiles.replica import Replica

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
        """Write the pack of all copies that the mirror is known to hold; how many. ``MirrorUnavailable``."""
        wanted = set(self._replica.paths())
        count = self._book.unpacked()
        copies = {path: stored for path, stored in self._book.copies() if path in wanted}
        write_pack(self._mirror, copies.items())
        self._book.packed(count)
        return len(copies)
