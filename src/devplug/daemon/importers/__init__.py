"""Importers: configurations of other device plugins as ours, with a report of what has no counterpart.

Pure.
"""
