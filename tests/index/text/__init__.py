"""Tests of index/text."""
