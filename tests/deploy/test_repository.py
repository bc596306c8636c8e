"""What the repository keeps is what the code makes now, and the chart's own files agree with each other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.__main__ import BEGIN, PAGE, generated, rows
from tests.deploy.renderings import CHART, ROOT

AGAIN = "run: make deploy"


def test_what_is_kept_is_what_the_code_makes() -> None:
    made = generated(ROOT)
    assert [path for path, text in made.items() if (ROOT / path).read_text() != text] == [], AGAIN


def test_the_base_has_no_other_files() -> None:
    there = {
        str(file.relative_to(ROOT)) for file in (ROOT / "deploy" / "kustomize").rglob("*") if file.is_file()
    }
    assert there <= generated(ROOT).keys()


def test_each_value_has_a_comment_and_a_type() -> None:
    def leaves(schema: dict[str, Any], path: str) -> Iterator[str]:
        for key, inner in schema["properties"].items():
            if "properties" in inner:
                yield from leaves(inner, f"{path}{key}.")
            else:
                yield f"{path}{key}"

    schema = json.loads((CHART / "values.schema.json").read_text())
    paths = [row.path for row in rows((CHART / "values.yaml").read_text())]
    assert sorted(paths) == sorted({*leaves(schema, "")} - {"global"})


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / CHART.relative_to(ROOT))
    (tmp_path / PAGE).parent.mkdir()
    (tmp_path / PAGE).write_text((ROOT / PAGE).read_text().replace(BEGIN, ""))
    with pytest.raises(ValueError, match="the page has no"):
        generated(tmp_path)
