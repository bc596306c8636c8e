"""What there is: trees of objects with places for values, and the texts made of several values."""
