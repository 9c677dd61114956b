"""The derived index of entries: their rows and texts in one small database, which may be deleted at any time.

The records are the truth: wherever the index may have fallen behind, it is compared with them, and whatever cannot be
trusted is built again from them.

Other rooms use ``change_log``, ``database``, ``groups``, ``index``, ``queries``, ``rows``, ``search.association``,
``search.embedder``, ``search.scope``, ``search.search``, ``search.vectors``, ``text.fts`` and ``text.tokenizer``.
"""

from memfiles.index.index import Index
from memfiles.index.search.embedder import Embedder

__all__ = ["Embedder", "Index"]
