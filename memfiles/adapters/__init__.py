"""Adapters to agent frameworks: each translates between one library and a session, and contains no other logic."""
