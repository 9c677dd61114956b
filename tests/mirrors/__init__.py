"""The mirrors against real stores on loopback: what they promise, and what they do when a store misbehaves."""
