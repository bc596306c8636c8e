"""The checks, a module per group: each a small function over a `Stage`, or over a `Lab` if it is fresh."""
