"""The project of a new plugin: its names, its files from the templates beside this, and their way to disk."""
