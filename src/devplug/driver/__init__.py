"""The DRA driver of a node, whatever its devices are: its ResourceSlices, and the claims that it prepares."""
