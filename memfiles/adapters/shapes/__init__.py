"""A session in the shapes that frameworks expect: a folder, a notebook, a store of items."""
