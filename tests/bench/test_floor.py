"""The floor: an echo with as many bytes as a call has."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.floor import bare_interpreter, echo, echo_client, exchanged_bytes


def test_an_echo_answers_one_and_many(tmp_path: Path) -> None:
    async def story() -> list[float]:
        path = tmp_path / "e.sock"
        async with echo(path, 100, 40) as floor, echo_client(path, 100, 40) as client:
            assert floor.process.threads() == 1
            async with asyncio.timeout(10):
                return [await client.seconds(), await client.seconds(at_once=500)]

    assert all(seconds > 0 for seconds in asyncio.run(story()))


async def test_a_bare_interpreter_says_when_it_is_there() -> None:
    async def story() -> tuple[float, int]:
        async with bare_interpreter() as floor:
            return floor.started_within, floor.process.memory_bytes()[0]

    seconds, size = await story()
    assert seconds > 0
    assert size > 1_000_000


def test_a_call_has_its_messages_and_the_frames_around_them() -> None:
    small, large = (
        exchanged_bytes("/v1beta1.DevicePlugin/Allocate", b"x" * n, b"y" * n, 10) for n in (1, 101)
    )
    assert [after - before for before, after in zip(small, large, strict=True)] == [100, 100]
    assert min(small) > 5 + 9 + 9
