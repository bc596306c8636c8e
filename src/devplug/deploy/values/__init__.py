"""The values of a deployment: the table of them, and the files that say what they are."""
