"""What Linux tells a program and does for it: events, processes, Unix sockets, files that last."""
