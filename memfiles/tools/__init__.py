"""What the model sees: sessions, tools, the index card, schemas and results."""
