"""Versions as selectors compare them."""

from __future__ import annotations

import pytest

from devplug.dra.semver import Semver, SemverError


def test_versions_rank_as_semver_says() -> None:
    """D70: the order of semver.org, section 11."""
    before = "alpha alpha.1 alpha.beta beta beta.2 beta.11 rc.1"
    texts = [*(f"1.0.0-{one}" for one in before.split()), "1.0.0", "1.2.0", "1.10.0"]
    versions = [Semver.parse(text) for text in texts]
    assert sorted(versions, reverse=True)[::-1] == versions
    assert Semver.parse("1.0.0+a") == Semver.parse("1.0.0+b")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "Version string empty"),
        ("1.0", "No Major.Minor.Patch elements found"),
        ("01.0.0", 'Major number must not contain leading zeroes "01"'),
        ("v1.0.0", 'Invalid character(s) found in major number "v1"'),
        ("1.0.0-01", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("1.0.0-", "Prerelease is empty"),
    ],
)
def test_what_is_no_version_is_refused(text: str, fault: str) -> None:
    """D70."""
    with pytest.raises(SemverError, match="^" + fault.replace("(", r"\(").replace(")", r"\)") + "$"):
        Semver.parse(text)


@pytest.mark.parametrize(("text", "expected"), [("v1.0", "1.0.0"), ("1", "1.0.0"), ("01.02.3", "1.2.3")])
def test_a_lenient_reading_takes_what_people_write(text: str, expected: str) -> None:
    """D70."""
    assert str(Semver.parse(text, is_lenient=True)) == expected
