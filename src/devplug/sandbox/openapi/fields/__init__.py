"""The fields of all kinds, as tables: names and types, and nothing that acts."""
