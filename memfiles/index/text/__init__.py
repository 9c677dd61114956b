"""Text of the search index: the tokenizer and the FTS5 tables."""
