"""The `devplug` command: a process from its arguments to its exit code."""

from __future__ import annotations

import gc
import os
import sys

from devplug.cli.startup import import_msgspec, start_daemon, uncollected


def main() -> None:
    """Run the command line and end the process with its exit code."""
    with uncollected():
        from devplug.cli.exits import exit_code_of
        from devplug.cli.streams import guard_output
    guard_output()
    code = exit_code_of(_code)
    # Or the interpreter looks through all objects before it ends: most of the work of a daemon's end, which a
    # pod with few CPU shares does slowly on a busy node.
    gc.freeze()
    sys.exit(code)


def _code() -> int | None:
    with uncollected():
        import_msgspec()
        from devplug.cli.run_options import plain_options
    options = plain_options(sys.argv[1:], os.environ)
    if options is not None:
        return start_daemon(options)
    from devplug.cli.commands import commands

    code: int | None = commands.main(standalone_mode=False)
    return code
