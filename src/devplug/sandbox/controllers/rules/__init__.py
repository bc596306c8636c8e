"""What controllers decide, as functions on objects: no clock, no registry, no waiting."""
