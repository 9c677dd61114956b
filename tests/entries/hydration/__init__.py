"""Tests of entries/hydration."""
