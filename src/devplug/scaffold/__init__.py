"""The project of a new plugin: its names, and its files from the templates beside this. Pure."""
