"""Memory files: the manager, its live records and their restore from a workflow."""
