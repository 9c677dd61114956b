"""Adapters to agent frameworks: each translates between one library and a session, and holds no logic of its own."""
