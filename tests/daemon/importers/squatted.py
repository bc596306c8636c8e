"""Devices of squat's plugin, translated, and what the tests ask of the result."""

from __future__ import annotations

import json
from typing import Any

from devplug.daemon.config.loader import load
from devplug.daemon.config.types import Config
from devplug.daemon.importers.draft import Grade
from devplug.daemon.importers.translation import Translation, translated


def config_of(found: Translation) -> Config:
    return load(found.text, "translated.yaml")


def warnings_of(found: Translation) -> list[str]:
    return [str(one.problem) for one in found.remarks if one.grade is Grade.WARNING]


def notes_of(found: Translation) -> list[str]:
    return [str(one.problem) for one in found.remarks if one.grade is Grade.NOTE]


def only(config: Config) -> Any:
    (resource,) = config.resources
    return resource


def squat(*groups: dict[str, Any], name: str = "thing", **keys: Any) -> Translation:
    return translated(json.dumps({"devices": [{"name": name, "groups": groups}], **keys}), "config.yaml")
