"""The sample plugin in Go: `sample.go`, built where it is wanted with what Debian has of gRPC for Go."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from bench.kubelet import MissingError

__all__ = ["built"]

SOURCE: Final = Path(__file__).with_name("sample.go")
PROGRAM: Final = SOURCE.parents[1] / "build" / "go" / "sample"
LIBRARIES: Final = Path("/usr/share/gocode")
"""Where Debian has the sources of Go's libraries."""

HOW: Final = "on Debian: apt-get install golang-go golang-google-grpc-dev"


def built() -> Path:
    """Return the program, built anew if its text is newer; raises `MissingError` where it cannot be built."""
    if PROGRAM.exists() and PROGRAM.stat().st_mtime > SOURCE.stat().st_mtime:
        return PROGRAM
    if shutil.which("go") is None or not (LIBRARIES / "src/google.golang.org/grpc").is_dir():
        raise MissingError(f"there is no gRPC for Go; {HOW}")
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": str(LIBRARIES), "CGO_ENABLED": "0"}
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-o", str(PROGRAM), str(SOURCE)]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        raise MissingError(f"{SOURCE.name} was not built: {made.stderr.strip()}")
    return PROGRAM
