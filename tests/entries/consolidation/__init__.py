"""Tests of entries/consolidation."""
