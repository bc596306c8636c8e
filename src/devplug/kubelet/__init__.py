"""The kubelet's end: a device manager that plugins cannot tell from the real one."""
