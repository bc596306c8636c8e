"""The exit codes of commands, and what a person reads when one ends badly."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from devplug import __version__
from devplug.errors import ConfigError, DevplugError

if TYPE_CHECKING:
    from collections.abc import Callable

OK: Final = 0
FAILED: Final = 1
"""Judged and failed."""

BAD_INPUT: Final = 2
OUR_BUG: Final = 3
INTERRUPTED: Final = 130


def say(text: str) -> None:
    """Write a line to standard error, if there is one."""
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")


def exit_code_of(command: Callable[[], int | None]) -> int:
    """Run a command and return its exit code; errors of ours become one line each on standard error."""
    try:
        return command() or OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit:
        return OK  # click ends so when nobody reads on, as in `devplug demo | head`
    except ConfigError as error:
        say("\n".join(error.lines()))
        return BAD_INPUT
    except DevplugError as error:
        say(f"devplug: {error}")
        return FAILED
    except Exception as error:  # noqa: BLE001 -- whatever is left is a bug of ours, and is said to be one
        return _code_of_click(error) or _bug()


def _code_of_click(error: Exception) -> int | None:
    import click  # which a daemon does without

    if isinstance(error, click.ClickException):
        error.show()
        return BAD_INPUT
    return INTERRUPTED if isinstance(error, click.Abort) else None


def _bug() -> int:
    import platform
    import traceback

    say(traceback.format_exc())
    say(
        f"devplug: this is a bug in devplug {__version__} (Python {platform.python_version()}, "
        f"{platform.system()} {platform.release()}); please report it with the lines above"
    )
    return OUR_BUG
