"""The status of nodes on a terminal: `devplug status`, once or with all that changes, and `devplug top`."""
