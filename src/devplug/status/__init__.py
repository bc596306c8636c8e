"""What there is to know of a node's devices at one moment, as values that every view is made from."""
