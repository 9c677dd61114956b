"""Bytes that survive: atomic replacement, the journal, locks, recovery, quarantine and the audit log.

Other rooms use ``atomic``, ``audit_reader``, ``derived_database``, ``entry_folders``, ``events``, ``fork_safety``,
``home``, ``journal``, ``locks``, ``migration``, ``postgres``, ``quarantine``, ``record_kinds``, ``record_store``,
``repository``, ``store``, ``transaction`` and ``watcher``.
"""
