"""The image: what its Dockerfile promises, and that its own steps make a folder from which devplug starts.

There is no container runtime here: the steps are read from the file, and run with the test's folders in place
of the image's.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import devplug
from tests.deploy.security_context.manifest import daemon_set
from tests.deploy.security_context.stage import CONFIG

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "deploy" / "Dockerfile").read_text()
LOCK: Final = ROOT / "requirements" / "image.lock"
SIZE_LIMIT_BYTES: Final = 80 * 2**20
"""What the image may add to its base."""
UNREACHABLE: Final = re.compile(
    r"connection|no matching distribution|could not find a version|resolv", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of the Dockerfile."""

    stage: str
    word: str
    text: str


def steps() -> Iterator[Step]:
    """Yield the instructions; the last stage has no name."""
    stage = ""
    lines = [line for line in TEXT.splitlines() if not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, text = line.strip().partition(" ")
        if word == "FROM":
            stage = text.partition(" AS ")[2]
        if word:
            yield Step(stage, word, text.strip())


def texts(word: str, stage: str | None = None) -> list[str]:
    return [step.text for step in steps() if step.word == word and stage in {None, step.stage}]


# ── what the file says ────────────────────────────────────────────────────────────────────────────


def test_each_base_is_a_digest_or_a_stage() -> None:
    named = {"base", "build"}
    bases = [text.split()[0] for text in texts("FROM")]
    foreign = [base for base in bases if base not in named]
    assert foreign
    assert [base for base in foreign if not re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", base)] == []
    assert ":latest" not in TEXT


def test_the_label_names_the_base() -> None:
    base = texts("FROM")[0].partition("@")[0]
    assert f'org.opencontainers.image.base.name="{base}"' in TEXT


def test_nothing_is_fetched_but_by_hash() -> None:
    assert texts("ADD") == []
    installs = [text for text in texts("RUN") if " install " in text]
    assert len(installs) == 2
    assert [
        text
        for text in installs
        if not {"--require-hashes", "--only-binary"} <= {*text.split()}
        and not {"--no-index", "--no-deps"} <= {*text.split()}
    ] == []
    assert not re.search(r"\b(curl|wget|apt-get|apk)\b", TEXT)


def test_each_pin_of_the_lock_has_hashes_and_is_the_tested_version() -> None:
    def pins(name: str) -> dict[str, str]:
        text = (ROOT / "requirements" / name).read_text()
        return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE | re.IGNORECASE))

    image = pins(LOCK.name)
    assert {"hpack", "nvidia-ml-py"} <= image.keys()
    assert pins("runtime.lock").items() <= image.items()
    assert image.items() <= pins("test.lock").items()
    unhashed = re.findall(r"^\S+==\S+[^\\\n]*$", LOCK.read_text(), re.MULTILINE)
    assert unhashed == []


def test_no_path_is_of_one_architecture() -> None:
    assert not re.search(r"x86_64|amd64/|aarch64|arm64/|linux-gnu", TEXT)


def test_the_program_gets_its_signals_and_its_arguments_from_the_manifest() -> None:
    assert texts("ENTRYPOINT") == ['["devplug"]']
    assert texts("CMD") == ['["run"]']
    assert texts("HEALTHCHECK") == []
    container = daemon_set(CONFIG)["spec"]["template"]["spec"]["containers"][0]
    assert "command" not in container
    assert container["args"][0] == "run"


def test_the_user_is_the_manifests_user_and_nobody_else_owns_the_files() -> None:
    context = daemon_set(CONFIG)["spec"]["template"]["spec"]["securityContext"]
    assert texts("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert "--chown" not in TEXT
    assert "chmod" not in TEXT
    assert texts("VOLUME") == []


def test_the_context_holds_what_is_copied_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    sources = {word for text in texts("COPY", "build") for word in text.split()[:-1]}
    assert rules[0] == "*"
    assert {rule.removeprefix("!") for rule in rules[1:]} == sources


# ── what its steps make ───────────────────────────────────────────────────────────────────────────


def python_with_pip() -> str | None:
    for program in (sys.executable, getattr(sys, "_base_executable", ""), shutil.which("python3")):
        if (
            program
            and not subprocess.run(
                [program, "-m", "pip", "--version"], capture_output=True, check=False
            ).returncode
        ):
            return program
    return None


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the stage `build` leaves: made by its own steps, on this machine's Python."""
    if (program := python_with_pip()) is None:
        pytest.skip("no Python here has pip (apt install python3-pip)")
    if not (ROOT / "src").is_dir():
        pytest.skip("no source here to build the wheel of: run it in a checkout")
    folder = tmp_path_factory.mktemp("image")
    build = folder / "build"
    build.mkdir()
    shutil.copy(LOCK, build)
    wheel = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(build)]
    made = subprocess.run(wheel, cwd=ROOT, capture_output=True, text=True, check=False)
    if "No module named hatchling" in made.stderr:
        pytest.skip("hatchling is not installed (make .venv/.ready)")
    assert made.returncode == 0, made.stderr
    for text in texts("RUN", "build"):
        words = [str(one) for word in shlex.split(text) for one in in_folder(word, folder, program)]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        if ran.returncode and "--require-hashes" in words and UNREACHABLE.search(ran.stderr):
            pytest.skip(f"pip reaches no index that has the wheels: {ran.stderr.splitlines()[-1]}")
        assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder / "opt" / "devplug"


def in_folder(word: str, folder: Path, program: str) -> list[Path | str]:
    """Return a word of a step as it is run here: globs as a shell has them, the image's folders in ours."""
    if word == "python":
        return [program]
    if not word.startswith(("/opt/", "/build/")):
        return [word]
    path = folder / word.lstrip("/")
    return [*path.parent.glob(path.name)] if "*" in path.name else [path]


def started(image: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the image's program with the image's environment alone."""
    environment = {"PATH": f"{image / 'bin'}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(["devplug", *words], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.nightly
def test_devplug_starts_from_what_the_steps_make(image: Path, tmp_path: Path) -> None:
    told = started(image, "--version")
    assert (told.returncode, devplug.__version__ in told.stdout) == (0, True), told.stderr
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    judged = started(image, "validate", str(file))
    assert judged.returncode == 0, judged.stderr


@pytest.mark.nightly
def test_all_extras_are_in_it(image: Path) -> None:
    words = [str(image / "bin" / "python"), "-c", "import pynvml, hpack"]
    assert subprocess.run(words, env={}, check=False).returncode == 0


@pytest.mark.nightly
def test_each_module_has_bytecode_that_no_time_makes_stale(image: Path) -> None:
    (package,) = image.glob("lib/python*/site-packages/devplug")
    sources = [path for path in package.rglob("*.py") if "texts" not in path.parts]
    compiled = {path.name.partition(".")[0]: path for path in package.rglob("*.pyc")}
    assert len([*package.rglob("*.pyc")]) >= len(sources)
    # PEP 552: bit 0 says that it is by hash, bit 1 that the hash is checked.
    assert {path.read_bytes()[4] & 0b11 for path in compiled.values()} == {0b01}


@pytest.mark.nightly
def test_it_is_small(image: Path) -> None:
    size = sum(path.lstat().st_size for path in image.rglob("*") if not path.is_symlink() and path.is_file())
    assert size < SIZE_LIMIT_BYTES, f"{size / 2**20:.0f} MiB"
    assert not any(image.glob("lib/python*/site-packages/pip"))


@pytest.mark.nightly
def test_nobody_but_root_may_write_to_it(image: Path) -> None:
    open_to_all = [path for path in image.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o002]
    assert open_to_all == []
    assert os.access(image / "bin" / "devplug", os.X_OK)
