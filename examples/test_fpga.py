"""How an author tests a plugin: `pytest examples/test_fpga.py`. The fixture `kubelet` comes with devplug."""

from fpga import Fpga


def test_every_card_is_advertised_with_its_numa_node(kubelet):
    kubelet.start(Fpga())
    assert [(device.id, device.numa_nodes) for device in kubelet.devices("example.com/fpga")] == [
        ("fpga-0", (0,)),
        ("fpga-1", (1,)),
    ]


def test_a_pod_gets_the_node_of_its_card(kubelet):
    kubelet.start(Fpga())
    container = kubelet.admit({"example.com/fpga": 1}).container
    assert [node.host_path for node in container.device_nodes] == ["/dev/fpga0"]
