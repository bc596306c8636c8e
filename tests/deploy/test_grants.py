"""What a manifest grants, as it is read for a trial: the API's defaults, and what is not tried."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.security_context.grants import grants_of
from tests.deploy.security_context.seccomp import REFUSED, filter_program

BARE: dict[str, Any] = {"capabilities": {"drop": ["ALL"]}}


def pod_spec(container: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "securityContext": BARE, **container}], **more}


def test_what_is_not_said_has_the_apis_wider_default() -> None:
    grants = grants_of(pod_spec({}), "n")
    assert not grants.no_new_privileges
    assert not grants.read_only_root
    assert not grants.seccomp
    assert grants.memory_bytes is None


def test_the_container_says_it_before_the_pod() -> None:
    wide = {**BARE, "runAsUser": 0, "seccompProfile": {"type": "Unconfined"}}
    pod = {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    assert grants_of(pod_spec({"securityContext": BARE}, securityContext=pod), "n").seccomp
    grants = grants_of(pod_spec({"securityContext": wide}, securityContext=pod), "n")
    assert (grants.user_id, grants.seccomp) == (0, False)


@pytest.mark.parametrize(
    "context",
    [
        {"privileged": True, **BARE},
        {},
        {"capabilities": {"drop": ["NET_RAW"]}},
        {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}},
    ],
    ids=["privileged", "all capabilities", "some dropped", "one added"],
)
def test_what_cannot_be_tried_is_refused(context: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="tried"):
        grants_of(pod_spec({"securityContext": context}), "n")


def test_a_mount_that_is_not_known_is_refused() -> None:
    volumes = [{"name": "v", "secret": {"secretName": "s"}}]
    with pytest.raises(ValueError, match="/v"):
        grants_of(pod_spec({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, volumes=volumes), "n")


def test_a_part_of_a_volume_is_refused_and_all_of_it_without_what_is_mounted_below_is_not() -> None:
    volumes = [{"name": "dev", "hostPath": {"path": "/dev"}}]
    part = {"name": "dev", "mountPath": "/dev", "subPath": "shm"}
    with pytest.raises(ValueError, match="/dev"):
        grants_of(pod_spec({"volumeMounts": [part]}, volumes=volumes), "n")
    (found,) = grants_of(pod_spec({"volumeMounts": [{**part, "subPath": "."}]}, volumes=volumes), "n").mounts
    assert found.is_sub_path


def test_a_mount_is_writable_and_not_recursive_unless_it_says_so() -> None:
    volumes = [{"name": "dev", "hostPath": {"path": "/dev"}}]
    plain = {"name": "dev", "mountPath": "/dev"}
    strict = {**plain, "readOnly": True, "recursiveReadOnly": "IfPossible"}
    (found,) = grants_of(pod_spec({"volumeMounts": [plain]}, volumes=volumes), "n").mounts
    assert (found.read_only, found.recursive) == (False, False)
    (found,) = grants_of(pod_spec({"volumeMounts": [strict]}, volumes=volumes), "n").mounts
    assert (found.read_only, found.recursive, found.host_path) == (True, True, "/dev")


@pytest.mark.parametrize(("quantity", "count"), [("96Mi", 96 * 2**20), ("1Gi", 2**30), ("5M", 5_000_000)])
def test_a_memory_limit_is_read_in_bytes(quantity: str, count: int) -> None:
    container = {"resources": {"limits": {"memory": quantity}}}
    assert grants_of(pod_spec(container), "n").memory_bytes == count


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_refused_call_is_in_the_filter_of_each_machine(machine: str) -> None:
    program = filter_program(machine)
    column = ["x86_64", "aarch64"].index(machine)
    steps = [program[at : at + 8] for at in range(0, len(program), 8)]
    compared = {int.from_bytes(step[4:], "little") for step in steps if step[0] == 0x15}
    assert {numbers[column] for numbers in REFUSED.values()} <= compared
