"""What tells an index that cannot be used just now from records that cannot: the records can stand in for it."""

from __future__ import annotations

from memfiles.errors import StorageFailed


class IndexUnusable(StorageFailed):
    """The index's own files cannot be read or written at the moment. Another process holds them, or the disk is full.

    Whatever the index would say can be asked of the records instead.
    """
