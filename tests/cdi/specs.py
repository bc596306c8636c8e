"""CDI specs for tests, and strategies for their parts."""

from __future__ import annotations

from hypothesis import strategies as st

from devplug.cdi.spec import CdiDevice, CdiMount, CdiNode, CdiSpec, bind_options, device_name
from devplug.devices import device_id_fault
from devplug.k8s.resource_names import resource_name_fault

KIND = "devplug.example.com/serial"
NODE = CdiNode("/dev/serial0", "/dev/ttyUSB0")
STICK = CdiDevice("stick", (NODE,))


def spec(*devices: CdiDevice, kind: str = KIND) -> CdiSpec:
    return CdiSpec(kind, devices)


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
domains = st.lists(labels, min_size=1, max_size=4).map(".".join)
kinds = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", fullmatch=True)

resource_names = st.builds(lambda domain, kind: f"{domain}/{kind}", domains, kinds).filter(
    lambda name: resource_name_fault(name) is None
)

device_ids = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=63).filter(
    lambda text: device_id_fault(text) is None
)

paths = (
    st.lists(
        st.text(
            st.characters(exclude_characters="/", exclude_categories=["C", "Z"]), min_size=1, max_size=8
        ).filter(lambda part: part not in {".", ".."}),
        min_size=1,
        max_size=2,
    )
    .map(lambda parts: "/" + "/".join(parts))
    .filter(str.isprintable)
)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
ids = st.none() | st.integers(0, 2**32 - 1)

nodes = st.builds(
    CdiNode,
    paths,
    paths,
    st.sampled_from(["r", "w", "rw", "rwm"]),
    ids,
    ids,
    st.none() | st.integers(0, 0o777),
)

mounts = st.builds(lambda host, inside: CdiMount(host, inside, bind_options()), paths, paths)
envs = st.dictionaries(texts.filter(lambda name: name and "=" not in name), texts, max_size=3)

devices = st.builds(
    CdiDevice,
    device_ids.map(device_name),
    st.lists(nodes, max_size=2, unique_by=lambda node: node.path).map(tuple),
    st.lists(mounts, max_size=1, unique_by=lambda mount: mount.container_path).map(tuple),
    envs,
)
