"""Looking at a node from a terminal: `devplug status`, once or with all that changes, and `devplug top`."""
