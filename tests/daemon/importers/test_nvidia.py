"""NVIDIA's configuration becomes GPUs under the same names, shared as before; the rest is told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.loader import load
from devplug.daemon.config.types import Resource
from devplug.daemon.importers.draft import Grade
from devplug.daemon.importers.translation import Translation, translated


def nvidia(source: str) -> Translation:
    return translated(f"version: v1\n{source}", "config.yaml")


def resources_of(found: Translation) -> tuple[Resource, ...]:
    return load(found.text, "translated.yaml").resources


def told(found: Translation, grade: Grade) -> list[str]:
    return [str(one.problem) for one in found.remarks if one.grade is grade]


def test_without_sharing_each_gpu_is_a_device() -> None:
    found = nvidia("flags: {migStrategy: none, failOnInitError: true}")
    (gpu,) = resources_of(found)
    assert (gpu.name, gpu.discover.nvidia[0].mig, gpu.when_none) == ("nvidia.com/gpu", "none", "fail")
    assert found.is_whole


def test_time_slices_are_replicas_under_the_name_that_pods_ask_for() -> None:
    found = nvidia(
        "sharing:\n  timeSlicing:\n    renameByDefault: true\n    failRequestsGreaterThanOne: true\n"
        "    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n"
    )
    (gpu,) = resources_of(found)
    assert gpu.name == "nvidia.com/gpu.shared"
    assert (gpu.share.replicas, gpu.share.max_per_container) == (4, 1)
    assert found.is_whole


def test_a_name_without_nvidias_domain_is_the_same_name() -> None:
    (gpu,) = resources_of(nvidia("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}"))
    assert (gpu.name, gpu.share.replicas, gpu.share.max_per_container) == ("nvidia.com/gpu", 2, None)


def test_mixed_mig_has_a_resource_for_each_profile_that_the_file_names() -> None:
    found = nvidia(
        "flags: {migStrategy: mixed}\nsharing: {timeSlicing: {resources: ["
        "{name: nvidia.com/mig-1g.10gb, replicas: 2}, {name: nvidia.com/mig-1g.10gb.me, replicas: 3}]}}"
    )
    gpu, small, media = resources_of(found)
    assert (gpu.name, gpu.share.replicas) == ("nvidia.com/gpu", 1)
    assert (small.name, small.discover.nvidia[0].mig) == ("nvidia.com/mig-1g.10gb", "1g.10gb")
    assert (media.name, media.discover.nvidia[0].mig) == ("nvidia.com/mig-1g.10gb.me", "1g.10gb+me")
    assert "a resource is here for 2 of the MIG profiles" in told(found, Grade.WARNING)[0]


def test_cdi_names_are_those_of_the_spec_that_somebody_must_write() -> None:
    found = nvidia("flags: {plugin: {deviceListStrategy: [cdi-cri]}}")
    (gpu,) = resources_of(found)
    assert gpu.expose.device_nodes == ()
    assert [one.source for one in gpu.expose.cdi_devices] == ["nvidia.com/gpu={uuid}"]
    assert "nvidia-ctk cdi generate" in told(found, Grade.NOTE)[0]


def test_switches_that_are_variables_stay_variables() -> None:
    (gpu,) = resources_of(nvidia("flags: {gdsEnabled: true, mofedEnabled: false, gdrcopyEnabled: true}"))
    assert {name.source: value.source for name, value in gpu.expose.env.items()} == {
        "NVIDIA_GDS": "enabled",
        "NVIDIA_GDRCOPY": "enabled",
    }


NAMES = st.sampled_from(
    ["gpu", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "mig-7g.80gb", "mig-1c.2g.10gb", "x y"]
)
PROFILES = st.fixed_dictionaries({"name": NAMES, "replicas": st.sampled_from([1, 2, 48, 999_999])})
SLICES = st.fixed_dictionaries(
    {"resources": st.lists(PROFILES, max_size=3)},
    optional={"renameByDefault": st.booleans(), "failRequestsGreaterThanOne": st.booleans()},
)
FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "migStrategy": st.sampled_from(["none", "single", "mixed"]),
        "failOnInitError": st.booleans(),
        "gdsEnabled": st.booleans(),
        "plugin": st.fixed_dictionaries(
            {},
            optional={
                "deviceListStrategy": st.sampled_from(
                    ["envvar", "volume-mounts", "cdi-cri", ["envvar", "cdi-cri"]]
                ),
                "sharedDevicesAllocationPolicy": st.sampled_from(["packed", "distributed"]),
            },
        ),
    },
)
SHARING = st.fixed_dictionaries({}, optional={"timeSlicing": SLICES, "mps": SLICES})


@given(st.fixed_dictionaries({"version": st.just("v1")}, optional={"flags": FLAGS, "sharing": SHARING}))
def test_every_configuration_gives_one_that_loads_or_says_what_was_left_out(
    config: dict[str, object],
) -> None:
    found = translated(json.dumps(config), "config.json")
    if found.config is not None:
        assert all(one.name.startswith("nvidia.com/") for one in resources_of(found))
    assert found.config is not None or told(found, Grade.WARNING)


def test_packed_replicas_stay_packed() -> None:
    source = "flags: {plugin: {sharedDevicesAllocationPolicy: packed}}\n"
    (alone,) = resources_of(nvidia(source))
    (shared,) = resources_of(
        nvidia(f"{source}sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: 2}}]}}}}")
    )
    assert (alone.prefer, shared.prefer) == ("auto", "packed")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("sharing: {mps: {resources: [{name: gpu, replicas: 4}]}}", "sharing.mps: MPS needs"),
        ("flags: {migStrategy: single}", "flags.migStrategy: the file does not say which MIG profile"),
        ("flags: {migStrategy: mixed}", "for none of the MIG profiles"),
        ("flags: {migStrategy: some}", "neither none, single nor mixed"),
        ("flags: {plugin: {deviceListStrategy: volume-mounts}}", "let NVIDIA's runtime accept that"),
        ("flags: {nvidiaDriverRoot: /opt/nvidia}", "runtimeClassName: nvidia"),
        ("flags: {deviceDiscoveryStrategy: tegra}", "no Tegra"),
        ("imex: {channelIDs: [0]}", "IMEX channels"),
        ("sharing: {timeSlicing: {resources: [{name: tpu, replicas: 4}]}}", "has no resource"),
        ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}", "fewer than 2 replicas"),
    ],
)
def test_what_has_no_counterpart_is_a_warning_beside_a_config_that_loads(source: str, reason: str) -> None:
    found = nvidia(source)
    assert [one.name for one in resources_of(found)] == ["nvidia.com/gpu"]
    assert any(reason in text for text in told(found, Grade.WARNING))
    assert not found.is_whole


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("resources: {gpus: [{pattern: '*A100*', name: a100}]}", "ignores this"),
        ("sharing: {timeSlicing: {resources: [{name: gpu, rename: x, replicas: 2}]}}", "another name"),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, devices: [0], replicas: 2}]}}",
            "discover.nvidia.uuid",
        ),
        ("flags: {plugin: {deviceIDStrategy: index}}", "containers see UUIDs"),
        ("flags: {plugin: {passDeviceSpecs: false}}", "always given"),
        ("flags: {gfd: {oneshot: true}}", "feature discovery"),
        ("flagz: {}", "does not know this key"),
    ],
)
def test_what_makes_no_difference_to_pods_is_a_note(source: str, reason: str) -> None:
    found = nvidia(source)
    assert resources_of(found)
    assert any(reason in text for text in told(found, Grade.NOTE))
    assert found.is_whole
