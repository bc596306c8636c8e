"""The interfaces of Linux: file and device events, processes, signals, Unix sockets, durable files."""
