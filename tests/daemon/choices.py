"""Devices to choose from, made of what a preference goes by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from devplug.daemon.preference import Candidate, preferred


def replicas(**free: str) -> list[Candidate]:
    """Candidates by found device: `a="02"` are a::0 and a::2."""
    return [Candidate(f"{found}::{one}", found) for found, numbers in free.items() for one in numbers]


def on_nodes(*nodes: int | tuple[int, ...]) -> list[Candidate]:
    """Devices d0, d1, … on these NUMA nodes."""
    places = [one if isinstance(one, tuple) else (one,) for one in nodes]
    return [Candidate(f"d{index}", f"d{index}", one) for index, one in enumerate(places)]


def linked(count: int, links: Mapping[tuple[int, int], int]) -> list[Candidate]:
    """GPUs g0, g1, … with so many links between two."""
    tables: list[dict[str, int]] = [{} for _ in range(count)]
    for (one, other), strength in links.items():
        tables[one][f"g{other}"] = tables[other][f"g{one}"] = strength
    return [Candidate(f"g{index}", f"g{index}", links=table) for index, table in enumerate(tables)]


def chosen(
    policy: str,
    candidates: Sequence[Candidate],
    size: int,
    *must: str,
    of: Sequence[Candidate] = (),
    **more: int,
) -> str:
    """What is preferred, as one text; `of` are all devices, `n0_n1=31` is a distance."""
    distances = {}
    for key, distance in more.items():
        one, other = (int(node[1:]) for node in key.split("_"))
        distances[one, other] = distances[other, one] = distance
    all_devices = of or candidates
    return " ".join(
        preferred(policy, candidates, must, size, all_devices=all_devices, numa_distances=distances)
    )


def indexes(ids: Iterable[str]) -> set[int]:
    """The numbers of d0, g1, …"""
    return {int(one[1:]) for one in ids}
