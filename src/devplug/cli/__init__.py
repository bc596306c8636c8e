"""The commands: arguments, logging set-up and exit codes; no decisions."""
