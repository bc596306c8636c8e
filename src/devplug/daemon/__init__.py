"""A plugin from a file instead of code."""
