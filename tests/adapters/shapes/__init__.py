"""Tests of adapters/shapes."""
