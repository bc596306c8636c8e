"""The configuration file: its types and rules, its tree and loader, its JSON Schema and its page of keys.

Pure.
"""
