"""Inputs that nobody sends on purpose: how they are made, kept, and made small."""
