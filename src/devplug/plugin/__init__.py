"""The plugin's end: what an author uses, and what keeps a plugin registered."""
