"""Sources of devices: one module per kind of discovery, and the host and hardware that they look at."""
