"""The commands: arguments, logging set-up and exit codes; no decisions."""

from devplug.cli.main import main

__all__ = ["main"]
