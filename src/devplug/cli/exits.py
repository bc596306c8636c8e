"""The exit codes of commands, and what a person reads when one ends badly."""

from __future__ import annotations

import platform
import traceback
from typing import TYPE_CHECKING, Final

import click

from devplug import __version__
from devplug.errors import ConfigError, DevplugError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BAD_INPUT", "FAILED", "INTERRUPTED", "OK", "OUR_BUG", "exit_code_of"]

OK: Final = 0
FAILED: Final = 1
"""Judged and failed."""

BAD_INPUT: Final = 2
OUR_BUG: Final = 3
INTERRUPTED: Final = 130


def exit_code_of(command: Callable[[], int | None]) -> int:
    """Run a command and return its exit code; errors of ours become one line each on standard error."""
    try:
        return command() or OK
    except click.ClickException as error:
        error.show()
        return BAD_INPUT
    except click.Abort:
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit:
        return OK  # click ends so when nobody reads on, as in `devplug demo | head`
    except ConfigError as error:
        click.echo("\n".join(error.lines()), err=True)
        return BAD_INPUT
    except DevplugError as error:
        click.echo(f"devplug: {error}", err=True)
        return FAILED
    except Exception:  # noqa: BLE001 -- whatever is left is a bug of ours, and is said to be one
        click.echo(traceback.format_exc(), err=True)
        click.echo(
            f"devplug: this is a bug in devplug {__version__} (Python {platform.python_version()}, "
            f"{platform.system()} {platform.release()}); please report it with the lines above",
            err=True,
        )
        return OUR_BUG
