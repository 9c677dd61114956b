"""The tests of memfiles and its mirrors."""
