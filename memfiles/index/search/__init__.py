"""Search over the index: scope, candidates, scores and snippets."""
