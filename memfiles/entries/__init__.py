"""Entries: what agents save under keys while they run, found again by level, words and time, and forgotten for good.

Other rooms use ``callers``, ``consolidation.plan``, ``drafts``, ``entries``, ``hydration.recall``, ``lazy``,
``log``, ``purge``, ``questions``, ``reader``, ``results``, ``transfer.exchange``, ``transfer.formats`` and ``users``.
"""
