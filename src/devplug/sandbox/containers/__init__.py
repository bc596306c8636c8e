"""Containers: the programs of this machine that stand in for mapped images, and what they print."""
