"""CDI, the way of container runtimes to find devices by name: specs as values and text, and their files."""
