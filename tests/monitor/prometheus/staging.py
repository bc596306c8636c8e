"""A real Prometheus that scrapes real processes, and its promtool; both are Debian's `prometheus`."""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
PATIENCE_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 0.05

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no prometheus here; to get it: apt-get install --no-install-recommends prometheus",
)


def promtool(*arguments: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run promtool to its end."""
    return subprocess.run(
        ["promtool", *map(str, arguments)],
        input=given,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def free_port() -> int:
    """Return a port that nobody listens on; for programs that cannot choose one and say which.

    It is below those that the system gives to whoever connects (ip_local_port_range), of which it may be
    given to somebody else before it is used.
    """
    while True:
        port = random.randrange(10_000, 32_768)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def page(port: int, path: str, accept: str = "text/plain") -> tuple[int, str]:
    """Return status and text of what a port of this machine answers."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Prometheus:
    """A server that is up; everything in it waits for what it needs."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self._port = port
        self._process = process

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data that the API answers; an error in an expression fails the test with its text."""
        status, text = page(self._port, f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        assert status == 200, text
        return json.loads(text)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression now, each with its labels (`metric`) and `value`."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Look at once and again until it is so; the end of the server, or a minute, fails the test."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, what or "it never came to be so"
            try:
                self._process.wait(LOOK_AGAIN_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"prometheus has ended: {self._process.returncode}")

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            return page(self._port, "/-/ready")[0] == 200
        except OSError:
            return False


@contextmanager
def scraping(
    folder: Path, targets: Mapping[str, int], labels: Mapping[str, Mapping[str, str]]
) -> Iterator[Prometheus]:
    """Start a server that scrapes these ports twice a second, each as a job of its own, with our rules.

    `labels` are those that service discovery gives to the target of a job.
    """
    config = folder / "prometheus.yml"
    port = free_port()
    config.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
                "rule_files": [str(RULES)],
                "scrape_configs": [
                    {
                        "job_name": job,
                        "static_configs": [
                            {"targets": [f"127.0.0.1:{target}"], "labels": dict(labels.get(job, {}))}
                        ],
                    }
                    for job, target in targets.items()
                ],
            }
        )
    )
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Prometheus(port, process)
        server.until(server.is_ready, "prometheus does not come up")
        yield server
    finally:
        process.kill()
        process.wait()
