"""Measurements, not tests: each prints figures beside the bare operation they are compared with."""
