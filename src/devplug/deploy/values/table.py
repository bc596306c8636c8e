"""All values of a deployment, in the order in which values.yaml has them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.deploy.values.granted import GRANTED
from devplug.deploy.values.rows import nested
from devplug.deploy.values.running import RUNNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.deploy.values.rows import Row
    from devplug.yamltext import Value

__all__ = ["GROUPS", "defaults", "rows"]

GROUPS: Final = (*GRANTED, *RUNNING)


def rows() -> Iterator[Row]:
    """Yield the rows of all groups."""
    for group in GROUPS:
        yield from group.rows


def defaults() -> dict[str, Value]:
    """Return all values as they are if nobody says otherwise."""
    return nested({row.path: row.default for row in rows()})
