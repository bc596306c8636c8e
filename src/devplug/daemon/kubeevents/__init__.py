"""What the cluster is told of this machine's devices: Events about its Node, and a condition of it."""
