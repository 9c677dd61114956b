"""The derived search index: everything in it can be made again from the records, and nothing else reads it."""
