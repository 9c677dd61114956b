"""A session's memory in the forms that frameworks expect: a folder, a notebook, a store of items."""
