"""The folder of a kubelet on its node: the names in it that are compiled into every kubelet. Pure."""

from __future__ import annotations

from typing import Final

KUBELET_ROOT: Final = "/var/lib/kubelet"
"""Where the kubelet keeps its files unless its --root-dir says otherwise, as that of k0s does."""

KUBELET_ROOT_VARIABLE: Final = "DEVPLUG_KUBELET_ROOT"
"""Names another such folder, for commands and for a plugin in code."""

KUBELET_PLUGIN_DIR: Final = f"{KUBELET_ROOT}/device-plugins"
"""Where every kubelet has its socket; compiled in there, its --root-dir does not move it (constants.go). Many
plugins have it compiled in too."""

KUBELET_SOCKET: Final = "kubelet.sock"
"""The socket in the plugin folder at which plugins register."""

POD_RESOURCES_NAME: Final = "pod-resources"
"""The folder in the root folder with the socket for monitors."""

CHECKPOINT_NAME: Final = "kubelet_internal_checkpoint"
"""The file in the plugin folder where the kubelet's device manager keeps what is allocated
(devicemanager/types.go)."""

REGISTRY_NAME: Final = "plugins_registry"
"""The folder, beside the plugin folder, in which a kubelet finds plugins by their sockets."""

DRA_STATE_NAME: Final = "dra_manager_state"
"""The file in the root folder where the kubelet keeps which claims are prepared for which pods."""

DRA_HEALTH_NAME: Final = "dra_health_state"
"""The file beside it with the health of devices as DRA drivers reported it."""

CDI_DIR: Final = "/var/run/cdi"
"""Where container runtimes look for generated CDI specs (pkg/cdi/spec-dirs.go); it is in memory, and empty
after a boot."""

CDI_DIRS: Final = ("/etc/cdi", CDI_DIR)
"""All folders in which container runtimes look for CDI specs by default (pkg/cdi/spec-dirs.go)."""

CDI_DIR_VARIABLE: Final = "DEVPLUG_CDI_DIR"
"""Names another such folder, for `devplug run` and for a plugin in code."""
