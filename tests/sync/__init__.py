"""The synchronisation with the mirror: what is due, what is decided, and that nothing is lost on the way."""
