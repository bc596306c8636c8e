"""Moments and ages as the API writes them: RFC 3339 in UTC, and the short ages of kubectl's tables. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_MINUTE_SECONDS = 60
_HOUR_SECONDS = 3600
_DAY_HOURS = 24
_YEAR_HOURS = 24 * 365
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def stamp(now: datetime) -> str:
    """Return a moment to the second, as most of the API has it (metav1.Time)."""
    return _iso(now, "seconds")


def stamp_at(seconds: float) -> str:
    """Return a Unix time as `stamp` writes it."""
    return stamp(datetime.fromtimestamp(seconds, UTC))


def micro_stamp(now: datetime) -> str:
    """Return a moment to the microsecond, as events and leases have it (metav1.MicroTime)."""
    return _iso(now, "microseconds")


def moment(written: str) -> datetime | None:
    """Return what `stamp` and its like wrote, in UTC; None for anything else."""
    try:
        read = datetime.fromisoformat(written)
        return read.astimezone(UTC) if read.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def later(at: datetime, seconds: float) -> datetime:
    """Return the moment so much later, or earlier; at most the last or the first one that there is.

    Objects may have numbers of seconds that lead far beyond the year 9999.
    """
    try:
        return at + timedelta(seconds=seconds)
    except OverflowError:
        return _LAST if seconds > 0 else _FIRST


def age(written: str, now: datetime) -> str:
    """Return how long ago that was, or `<unknown>` (printers.go translateTimestampSince)."""
    since = moment(written)
    return "<unknown>" if since is None else human_duration((now - since).total_seconds())


def human_duration(seconds: float) -> str:
    """Return a duration in two or three figures (apimachinery util/duration HumanDuration).

    Of a time less than two seconds ahead it is said that it is now: clocks differ.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    minutes, hours = whole // _MINUTE_SECONDS, whole // _HOUR_SECONDS
    days, years = hours // _DAY_HOURS, hours // _YEAR_HOURS
    if whole < 2 * _MINUTE_SECONDS:
        return f"{max(whole, 0)}s"
    if minutes < 10:
        return _two(minutes, "m", whole % _MINUTE_SECONDS, "s")
    if minutes < 3 * 60:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 2 * _DAY_HOURS:
        return f"{hours}h"
    if hours < 8 * _DAY_HOURS:
        return _two(days, "d", hours % _DAY_HOURS, "h")
    if hours < 2 * _YEAR_HOURS:
        return f"{days}d"
    if hours < 8 * _YEAR_HOURS:
        return _two(years, "y", days % 365, "d")
    return f"{years}y"


def _two(much: int, unit: str, rest: int, small_unit: str) -> str:
    return f"{much}{unit}{rest}{small_unit}" if rest else f"{much}{unit}"


def _iso(now: datetime, timespec: str) -> str:
    """Return a moment; `strftime` would write the year 1 with one digit."""
    return f"{now.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=timespec)}Z"
