"""Records as values, their codecs and history, and the pure decisions over them.

Other rooms use ``declared_metadata``, ``entry``, ``entry_codec``, ``file_changes``, ``graphemes``, ``history``,
``keys``, ``levels``, ``lineage``, ``marks``, ``record`` and ``redactions``.
"""
