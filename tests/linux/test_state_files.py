"""State files that are no files of ours: pipes, huge ones, too many values. No reader waits for them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from devplug.driver.prepared_claims import STATE_NAME, PreparedClaims
from devplug.holds.client import read_checkpoint
from devplug.holds.held_devices import dirty_names
from devplug.holds.ledger_store import LedgerFile
from devplug.holds.names import NamesRegister
from devplug.linux.durable_file import STATE_LIMIT_BYTES, STATE_VALUES_LIMIT, read_state
from devplug.plugin.drivers import _claims_at

pytestmark = pytest.mark.timeout(20)


def read_own_claims(path: Path) -> object:
    folder = path.with_name("driver")
    folder.mkdir()
    path.rename(folder / STATE_NAME)
    claims = PreparedClaims("gpu.example.com", folder, path.parent, "boot")
    asyncio.run(_locked(claims))
    assert claims.claims == {}
    return None if f"{STATE_NAME}.unreadable" in os.listdir(folder) else "not put aside"  # noqa: PTH208


async def _locked(claims: PreparedClaims) -> None:
    async with claims.locked():
        pass


def read_ledger(path: Path) -> object:
    path = path.rename(LedgerFile(path.parent, "example.com/a").path)
    return LedgerFile(path.parent, "example.com/a").read()


READERS: dict[str, Callable[[Path], object]] = {
    "held-*.json": read_ledger,
    "dirty-*.json": dirty_names,
    "names.json": lambda path: None if NamesRegister(path).fault else "no fault",
    "prepared_claims.json": read_own_claims,
    "prepared_claims.json of another driver": _claims_at,
    "the kubelet's checkpoint": read_checkpoint,
}


def pipe(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2 << 30)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [pipe, sparse, device, folder])
@pytest.mark.parametrize("name", READERS)
def test_a_state_file_that_is_none_is_damaged(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "file")
    assert READERS[name](tmp_path / "file") is None


def test_a_state_file_has_bounds_in_bytes_and_values(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * STATE_LIMIT_BYTES)
    assert len(read_state(path)) == STATE_LIMIT_BYTES
    path.write_bytes(b"x" * (STATE_LIMIT_BYTES + 1))
    with pytest.raises(OSError, match="it has more than 8388608 bytes"):
        read_state(path)
    path.write_text(json.dumps([0] * STATE_VALUES_LIMIT))
    assert read_state(path)
    path.write_text(json.dumps([0] * (STATE_VALUES_LIMIT + 1)))
    with pytest.raises(OSError, match="it has more than 393216 values"):
        read_state(path)
