"""Which command stands for an image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.sandbox.containers.images import mapped

DIGEST = "sha256:" + "0" * 64
FULL = f"registry.k8s.io:443/e2e/sample-device-plugin:1.7@{DIGEST}"


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (FULL, FULL),
        (FULL, f"sample-device-plugin@{DIGEST}"),
        (FULL, "registry.k8s.io:443/e2e/sample-device-plugin:1.7"),
        (FULL, "e2e/sample-device-plugin:1.7"),
        (FULL, "e2e/sample-device-plugin"),
        (FULL, "sample-device-plugin"),
        ("plugin", "plugin"),
        ("plugin", "plugin:latest"),
        ("plugin", "docker.io/library/plugin"),
        ("docker.io/library/plugin:latest", "plugin"),
        ("me/plugin:2", "docker.io/me/plugin:2"),
        ("localhost/plugin", "plugin"),
        ("localhost:5000/plugin", "localhost:5000/plugin:latest"),
    ],
)
def test_a_name_may_leave_out_what_it_likes(image: str, name: str) -> None:
    assert mapped(image, {name: ["right"], "other": ["wrong"]}) == ["right"]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (FULL, "plugin"),
        (FULL, "device-plugin"),
        (FULL, "e2e"),
        (FULL, "sample-device-plugin:1.8"),
        (FULL, "docker.io/e2e/sample-device-plugin"),
        ("plugin", "plugin:1"),
        ("localhost/plugin", "docker.io/localhost/plugin"),
    ],
)
def test_a_name_that_says_something_else_does_not_fit(image: str, name: str) -> None:
    assert mapped(image, {name: ["wrong"]}) is None


def test_the_name_that_says_most_wins() -> None:
    names = [
        f"e2e/plugin:1@{DIGEST}",
        f"e2e/plugin@{DIGEST}",
        "e2e/plugin:1",
        "e2e/plugin",
        f"plugin:1@{DIGEST}",
        f"plugin@{DIGEST}",
        "plugin:1",
        "plugin",
    ]
    images = {name: [name] for name in reversed(names)}
    for name in names:
        assert mapped(f"example.com/e2e/plugin:1@{DIGEST}", images) == [name]
        del images[name]


@given(st.text(max_size=40))
def test_a_name_that_is_the_image_itself_always_fits(image: str) -> None:
    assert mapped(image, {image: ["right"]}) == ["right"]
