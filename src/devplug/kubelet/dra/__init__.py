"""The DRA manager of the kubelet: drivers, the claims that they prepare, and the health of their devices."""
