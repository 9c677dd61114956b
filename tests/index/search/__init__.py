"""Tests of index/search."""
