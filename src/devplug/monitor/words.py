"""The words that all views for people share: ages, counts, and the sentence on a DRA driver. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.errors import one_line

if TYPE_CHECKING:
    from devplug.status import DriverStatus

STALE_SECONDS: Final = 10.0
"""How long slices may be behind before it is said: each change takes a moment."""


def age(now: float, since: float) -> str:
    """Return how long ago a Unix time was, in its largest unit. A clock may have gone back."""
    seconds = max(0, int(now - since))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def many(number: int, word: str) -> str:
    """Return a number of things: `1 slice`, `2 slices`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def is_stale(driver: DriverStatus, now: float) -> bool:
    """Whether the driver's slices have not said what there is for longer than a change takes."""
    return driver.stale_since is not None and now >= driver.stale_since + STALE_SECONDS


def driver_sentence(driver: DriverStatus, now: float) -> str:
    """Return whether a kubelet has registered a driver, what it has published, and what is wrong."""
    name = f"DRA driver {one_line(driver.name)}"
    kubelet = f" ({one_line(driver.kubelet_api)})" if driver.kubelet_api else ""
    said = f"{name} registered{kubelet}" if driver.is_registered else f"{name} NOT registered"
    said += f"; {many(driver.devices, 'device')} in {many(driver.slices, 'slice')}"
    if driver.generation is not None:
        said += f", generation {driver.generation}"
    if driver.stale_since is not None and is_stale(driver, now):
        said += f", STALE for {age(now, driver.stale_since)}"
    said += f"; {many(driver.claims, 'claim')}"
    return f"{said}: {one_line(driver.fault)}" if driver.fault else said
