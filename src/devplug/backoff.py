"""The wait after failures in a row, which doubles with each: one rule for whoever tries again. Pure."""

from __future__ import annotations


def backoff_seconds(failures: int, first_seconds: float, most_seconds: float) -> float:
    """Return the wait after so many failures in a row: twice the last one, within the bounds; 0.0 after none.

    Where many wait for one server, the caller spreads the waits by chance.
    """
    if failures <= 0:
        return 0.0
    # The exponent is bounded because a float is: 2.0 ** 1024 is an error.
    return min(first_seconds * 2.0 ** min(failures - 1, 64), most_seconds)
