"""Tests of tools/dialects."""
