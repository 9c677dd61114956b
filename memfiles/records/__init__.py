"""Records as values, their codecs and history, and the pure decisions over them."""
