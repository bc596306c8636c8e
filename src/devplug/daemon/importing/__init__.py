"""Configurations of other device plugins, translated into ours, with a report of what has no counterpart."""
