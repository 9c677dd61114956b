"""Entries: what agents save under keys while they run, found again by level, words and time, and forgotten for good."""
