"""Tests of entries/transfer."""
