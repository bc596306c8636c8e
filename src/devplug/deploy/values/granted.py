"""The values that say what runs, what it serves, and what the pod is allowed to. Pure."""

from __future__ import annotations

from typing import Final

from devplug.deploy.values.rows import MAP, MAPS, NAME, TEXT, TEXTS_BY_NAME, TRUTH, Group, Row, one_of

__all__ = ["GRANTED", "STARTER"]

STARTER: Final = """\
version: 1
resources:
  - name: example.com/fuse
    discover:
      path: /dev/fuse
    share:
      replicas: 100
      maxPerContainer: 1
  - name: example.com/kvm
    discover:
      path: /dev/kvm
    share:
      replicas: 100
      maxPerContainer: 1
  - name: example.com/tun
    discover:
      path: /dev/net/tun
    share:
      replicas: 100
      maxPerContainer: 1
"""
"""A configuration for any Linux machine, to start from: devices that many pods may share without harm."""

GRANTED: Final = (
    Group(
        "The image",
        (
            Row("image.repository", "ghcr.io/devplug/devplug", TEXT, "Registry and name."),
            Row("image.tag", "", TEXT, "Tag. Default: the version of the chart."),
            Row(
                "image.digest",
                "",
                {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                "Digest; wins over the tag.",
            ),
            Row(
                "image.pullPolicy",
                "IfNotPresent",
                one_of("Always", "IfNotPresent", "Never"),
                "When it is pulled.",
            ),
            Row("imagePullSecrets", [], MAPS, "Secrets for the registry, as in `- name: my-secret`."),
        ),
    ),
    Group(
        "Names",
        (
            Row("nameOverride", "", NAME, "In place of the chart's name."),
            Row("fullnameOverride", "", NAME, "In place of the release's and the chart's name."),
            Row("namespaceOverride", "", NAME, "In place of the release's namespace."),
            Row(
                "createNamespace",
                default=False,
                schema=TRUTH,
                words="Make the namespace, with the Pod Security label that hostPath volumes need.",
            ),
        ),
    ),
    Group(
        "What is served",
        (
            Row(
                "config.inline",
                STARTER,
                TEXT,
                "The configuration file, whole (`--set-file config.inline=devplug.yaml`). "
                "The default is a starter: replace it.",
            ),
            Row(
                "config.existingConfigMap",
                "",
                TEXT,
                "A ConfigMap of yours instead; empty `config.inline` then.",
            ),
            Row("config.key", "config.yaml", {"type": "string", "minLength": 1}, "Its key."),
            Row(
                "config.checksumRestart",
                default=False,
                schema=TRUTH,
                words="Restart the pods when the configuration changes. They read it anew without that.",
            ),
        ),
    ),
    Group(
        "What the pod may do: as little as works; `devplug manifests --format chart-values -c FILE` "
        "says what a configuration needs",
        (
            Row(
                "dev.enabled",
                default=True,
                schema=TRUTH,
                words="See the machine's /dev, read-only: to find devices.",
            ),
            Row(
                "dev.submounts",
                default=False,
                schema=TRUTH,
                words="See what is mounted below /dev, too, but for terminals and shared memory: where the "
                "machine is itself a container whose device nodes are mounts (LXC, rootless kind).",
            ),
            Row(
                "dev.hideConsole",
                default=True,
                schema=TRUTH,
                words="Show /dev/null in place of the machine's /dev/console. A machine without one (k3d) "
                "needs `false`.",
            ),
            Row(
                "deviceAccess.enabled",
                default=False,
                schema=TRUTH,
                words="Open devices (health rules with `open` or `exec`, commands): the container is "
                "privileged, since nothing less passes the device cgroup.",
            ),
            Row(
                "cdi.enabled",
                default=False,
                schema=TRUTH,
                words="Write to /var/run/cdi: for `strategy: cdi`.",
            ),
            Row(
                "nvidia.enabled",
                default=False,
                schema=TRUTH,
                words="Ask the NVIDIA driver; needs `runtimeClassName`.",
            ),
            Row(
                "nvidia.mig",
                default=False,
                schema=TRUTH,
                words="See all MIG instances; needs `securityContext.capabilities.add: [SYS_ADMIN]`.",
            ),
            Row("runtimeClassName", "", TEXT, "Runtime class of the pod, as in nvidia."),
            Row(
                "hostNetwork",
                default=False,
                schema=TRUTH,
                words="Be in the machine's network: for `discover.net`. The port is then the machine's, too.",
            ),
            Row(
                "nodeLabels.enabled",
                default=False,
                schema=TRUTH,
                words="Read this machine's labels: for `nodeSelector`.",
            ),
            Row(
                "kubeEvents.enabled",
                default=False,
                schema=TRUTH,
                words="Write Events and a condition of the Node.",
            ),
            Row("serviceAccount.create", default=True, schema=TRUTH, words="Make a ServiceAccount."),
            Row(
                "serviceAccount.name", "", TEXT, "Its name. Default: the full name; without create, default."
            ),
            Row("serviceAccount.annotations", {}, TEXTS_BY_NAME, "Its annotations."),
            Row(
                "rbac.create",
                default=True,
                schema=TRUTH,
                words="Make the roles that nodeLabels and kubeEvents need.",
            ),
            Row(
                "podSecurityContext",
                {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
                MAP,
                "Security of the pod. User 0, because the kubelet's socket is root's.",
            ),
            Row(
                "securityContext",
                {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                    "seLinuxOptions": {"type": "container_device_plugin_t"},
                },
                MAP,
                "Security of the container. The SELinux type is container-selinux's for device plugins.",
            ),
            Row(
                "networkPolicy.enabled",
                default=True,
                schema=TRUTH,
                words="Let in only who asks the port, let out nothing.",
            ),
            Row("networkPolicy.from", [], MAPS, "Who may ask the port. Default: all."),
            Row(
                "networkPolicy.apiServerEgress",
                [{"ports": [{"protocol": "TCP", "port": port} for port in (443, 6443, 8443, 16443)]}],
                MAPS,
                "The way to the API server, open only with nodeLabels or kubeEvents.",
            ),
        ),
    ),
)
