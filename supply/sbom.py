"""What is shipped, as CycloneDX 1.6: a document for each lock, the same bytes for the same lock and metadata.

`python -m supply.sbom FOLDER` writes them. The tools that there are read either an environment or a lock, and
put the time of day into the document. This has the hashes of each package from the lock, its licence and its
needs from its own metadata, and can be made again to the last byte.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from importlib.metadata import PackageMetadata

__all__ = ["LOCKS", "Locked", "bom_text", "boms", "locked_in", "main", "needs_of"]

ROOT: Final = Path(__file__).parents[1]

LOCKS: Final[Mapping[str, tuple[str, ...]]] = {
    "runtime": (),
    "image": ("nvidia",),
}
"""The locks of what is shipped, with the extras of devplug in each: what pip installs, and the image."""

_SPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/devplug/devplug/sbom")
_PINNED: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)[ \t]*(?:;(?P<marker>[^\\\n]*))?"
)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NEED: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_SPDX: Final = re.compile(r"[A-Za-z0-9.+-]+")


@dataclass(frozen=True, slots=True)
class Locked:
    """One package of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each file that pip takes for it."""
    marker: str = ""
    """On which machines it is installed; empty for all."""

    @property
    def url(self) -> str:
        """Its package URL, by which scanners know it (package-url/purl-spec)."""
        return f"pkg:pypi/{self.name}@{self.version}"


def locked_in(lock: str) -> tuple[Locked, ...]:
    """Return the packages of a lock, by name."""
    found: list[Locked] = []
    for block in re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"(?m)^\s*#.*\n", "", lock)):
        if pinned := _PINNED.match(block):
            hashes = tuple(sorted(_HASH.findall(block)))
            found.append(
                Locked(_normal(pinned["name"]), pinned["version"], hashes, (pinned["marker"] or "").strip())
            )
    return tuple(sorted(found, key=lambda one: (one.name, one.version)))


def needs_of(told: Iterable[str], extras: Collection[str] = ()) -> dict[str, set[str]]:
    """Return what a package needs by its Requires-Dist, with these of its extras: names, each with extras."""
    needs: dict[str, set[str]] = {}
    for line in told:
        requirement, _, marker = line.partition(";")
        wanted = re.findall(r"extra\s*==\s*['\"]([^'\"]+)['\"]", marker)
        if (found := _NEED.match(requirement.strip())) and (not wanted or set(wanted) & set(extras)):
            asked = {one.strip() for one in (found[2] or "").split(",")} - {""}
            needs.setdefault(_normal(found[1]), set()).update(asked)
    return needs


def _graph(
    direct: Mapping[str, set[str]], about: Mapping[str, PackageMetadata]
) -> dict[str, dict[str, set[str]]]:
    """Return the needs of each package that is needed by `direct`, or by one of those, and so on.

    Which of its extras are meant is only known once all have been looked at who ask for it.
    """
    extras: dict[str, set[str]] = {}
    needs: dict[str, dict[str, set[str]]] = {}
    todo = list(direct.items())
    while todo:
        name, asked = todo.pop()
        known = extras.setdefault(name, set())
        if name in needs and asked <= known:
            continue
        known |= asked
        told = about[name].get_all("Requires-Dist") if name in about else None
        needs[name] = needs_of(told or (), known)
        todo += needs[name].items()
    return needs


def bom_text(
    lock: str, version: str, direct: Mapping[str, set[str]], about: Mapping[str, PackageMetadata]
) -> str:
    """Return the document of a lock: devplug of this version, which needs `direct`.

    `about` has the metadata of packages by name; of one that is not there no licence and no needs are told.
    """
    packages = locked_in(lock)
    urls = {one.name: one.url for one in packages}
    own = f"pkg:pypi/devplug@{version}"
    graph = _graph(direct, about)
    needs = {own: direct} | {one.url: graph.get(one.name, {}) for one in packages}
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "devplug",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0", "acknowledgement": "declared"}}],
            },
        },
        "components": [_component(one, about.get(one.name)) for one in packages],
        "dependencies": [
            {"ref": url, "dependsOn": sorted(urls[name] for name in names if name in urls)}
            for url, names in sorted(needs.items())
        ],
    }
    # The same number for the same content, so that two documents of one number are one.
    number = uuid.uuid5(_SPACE, json.dumps(document, sort_keys=True))
    return json.dumps({**document, "serialNumber": number.urn}, indent=2, sort_keys=True) + "\n"


def _component(one: Locked, about: PackageMetadata | None) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": one.url,
        "name": one.name,
        "version": one.version,
        "purl": one.url,
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{one.name}/{one.version}/#files",
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in one.hashes],
            }
        ],
    }
    if one.marker:
        component["properties"] = [{"name": "devplug:marker", "value": one.marker}]
    if about is not None and (licence := _licence(about)):
        component["licenses"] = [licence]
    return component


def _licence(about: PackageMetadata) -> dict[str, Any] | None:
    """Return what a package declares: an SPDX expression, else a name in words."""
    if expression := about.get_all("License-Expression"):
        return {"expression": expression[0], "acknowledgement": "declared"}
    told = (about.get_all("License") or [""])[0]
    classified = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or ()
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    words = told if _SPDX.fullmatch(told) else " and ".join(classified) or told.partition("\n")[0][:80]
    return {"license": {"name": words, "acknowledgement": "declared"}} if words else None


def _normal(name: str) -> str:
    """Return a name as indexes write it (packaging.python.org, name normalization)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _known(packages: Iterable[Locked]) -> dict[str, PackageMetadata]:
    """Return the metadata of those packages that are installed here in the very version."""
    found = {}
    for one in packages:
        try:
            about = metadata(one.name)
        except PackageNotFoundError:
            continue
        if about["Version"] == one.version:
            found[one.name] = about
    return found


def _version() -> str:
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / "src" / "devplug" / "__init__.py").read_text())
    assert found
    return found[1]


def boms() -> dict[str, str]:
    """Return the documents of all locks, by file name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    made = {}
    for name, extras in LOCKS.items():
        lock = (ROOT / "requirements" / f"{name}.lock").read_text()
        told = [*project["dependencies"]]
        for extra in extras:
            told += project["optional-dependencies"][extra]
        made[f"devplug-{name}.cdx.json"] = bom_text(lock, _version(), needs_of(told), _known(locked_in(lock)))
    return made


def main(folder: Path) -> None:
    """Write all documents into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in boms().items():
        (folder / name).write_text(text)
        sys.stdout.write(f"{folder / name}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
