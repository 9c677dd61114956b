"""Tests of entries."""
