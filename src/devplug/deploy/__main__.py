"""The program that writes what the repository holds: chart, kustomize base, alerts, dashboard, docs table.

`python -m devplug.deploy FOLDER` at the root of a checkout.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from devplug.deploy.repository import deployment_files, monitoring_files, with_table

DOCS = Path("docs", "deploying.md")


def main(folder: Path) -> None:
    """Write all anew."""
    for name in ("chart", "kustomize"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for path, text in (deployment_files() | monitoring_files()).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    DOCS.write_text(with_table(DOCS.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
