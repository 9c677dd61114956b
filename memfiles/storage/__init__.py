"""Bytes that survive: atomic replacement, the journal, locks, recovery, quarantine and the audit log."""
