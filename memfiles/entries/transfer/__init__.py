"""Import and export of entries: documents, file formats and foreign sources."""
