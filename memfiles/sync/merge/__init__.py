"""Three-way merges of two copies of a record (pure)."""
