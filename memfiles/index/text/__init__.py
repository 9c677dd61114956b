"""Text of the search index: tokenizer, vocabulary and the FTS5 tables."""
