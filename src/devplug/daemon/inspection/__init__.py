"""The inspection of a machine: what a configuration would find on it, and which one would find all."""
