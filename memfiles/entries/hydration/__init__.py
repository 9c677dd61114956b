"""Hydration: which entries fit the byte budget of a prompt, and why."""
