"""Text of the search index: tokens, vocabulary and the FTS5 tables."""
