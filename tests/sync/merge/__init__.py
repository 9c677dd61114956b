"""Tests of sync/merge."""
