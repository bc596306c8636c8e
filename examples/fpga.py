"""Two FPGA cards, each near one NUMA node: a list that never changes."""

import devplug


class Fpga(devplug.DevicePlugin):
    resource_name = "example.com/fpga"

    def devices(self) -> list[devplug.Device]:
        return [devplug.Device(f"fpga-{n}", numa_nodes=[n], device_nodes=[f"/dev/fpga{n}"]) for n in (0, 1)]


if __name__ == "__main__":
    devplug.run(Fpga())
