"""The guards of the kubelet's end and of who asks it: who holds what, and what survives restarts."""

from __future__ import annotations

from typing import Final

from torture.guards.guard import Guard

__all__ = ["GUARDS"]

_ALLOCATION: Final = "src/devplug/kubelet/allocation.py"
_FOLDER: Final = "src/devplug/kubelet/pluginfolder.py"
_LEDGER: Final = "src/devplug/holds/ledger.py"

GUARDS: Final = (
    Guard(
        "nodes-of-the-machine",
        "I6",
        "hints name only NUMA nodes that the machine has",
        "src/devplug/kubelet/hints.py",
        "nodes = sorted(node for node in machine_nodes if",
        "nodes = sorted(node for node in range(1024) if",
        "case topology-extremes 100",
    ),
    Guard(
        "allocated-is-not-available",
        "I1",
        "what a container has is given to no other",
        "src/devplug/kubelet/resources.py",
        "        return (self.healthy or _NONE) - (self.allocated or _NONE)\n",
        "        return self.healthy or _NONE\n",
        "tests/kubelet/test_allocation.py::test_no_device_is_ever_held_twice",
    ),
    Guard(
        "restored-is-allocated",
        "I1",
        "the assignments of a checkpoint are allocated after a restart",
        _ALLOCATION,
        "        self._keep({held.key: held for held in assignments})\n        self._recount()\n",
        "        self._keep({held.key: held for held in assignments})\n",
        "tests/kubelet/test_restart.py",
    ),
    Guard(
        "freed-when-its-pod-ends",
        "I2",
        "the devices of a pod that has ended come back",
        _ALLOCATION,
        "        kept = {key: held for key, held in self._assignments.items() if key[0] in active_pods}\n",
        "        kept = dict(self._assignments)\n",
        "tests/kubelet/test_allocation.py::test_devices_of_inactive_pods_are_freed_with_all_leaks",
    ),
    Guard(
        "checksum-of-the-checkpoint",
        "I1",
        "a damaged checkpoint is not believed",
        "src/devplug/kubelet/checkpoint.py",
        "    if checksum(checkpoint) != stated:\n",
        "    if False:\n",
        "tests/kubelet/test_checkpoint.py::test_a_checksum_that_does_not_match_is_corruption",
    ),
    Guard(
        "given-out-is-in-use",
        "I12",
        "what we gave out counts as held before any answer shows it",
        _LEDGER,
        "            resource.put(device_id, _Hold(Remembered(holders), allocated_at=now))\n",
        "            resource.put(device_id, _Hold(Remembered(holders, self._kubelet)))\n",
        "tests/holds/test_ledger.py",
    ),
    Guard(
        "two-answers-free",
        "I1",
        "one answer without a device does not free it",
        _LEDGER,
        "asked_at < max(missing_since + self._rules.period_seconds, listed_at)",
        "asked_at < listed_at",
        "tests/holds/test_ledger.py::test_a_device_is_free_after_two_answers_a_period_apart",
    ),
    Guard(
        "init-containers-hold",
        "I1",
        "a device that only an init container has is not freed because no answer shows it",
        _LEDGER,
        " and is_named is not False:\n",
        " and is_named is None:\n",
        "tests/holds/test_ledger.py",
    ),
    Guard(
        "new-kubelet-is-not-believed",
        "I1",
        "a kubelet that has just started frees nothing that it has never listed",
        _LEDGER,
        "        if before.remembered.kubelet != self._kubelet and",
        "        if False and",
        "tests/holds/test_any_history.py",
    ),
    Guard(
        "pod-resources-once",
        "I10",
        "a PodResources that stays away is told of once",
        "src/devplug/holds/holders.py",
        "if error.trouble is not self._trouble:\n",
        "if True:\n",
        "case clients-of-pod-resources 20",
    ),
    Guard(
        "pod-resources-pace",
        "I7",
        "a PodResources that fails is asked ever more slowly",
        "src/devplug/holds/client.py",
        "backoff_seconds(failures, FIRST_RETRY_SECONDS, SLOWEST_RETRY_SECONDS)",
        "FIRST_RETRY_SECONDS",
        "case clients-of-pod-resources 20",
    ),
    Guard(
        "damaged-checkpoints-are-kept",
        "I4",
        "a damaged checkpoint is put aside for people to look at",
        "src/devplug/kubelet/devicemanager.py",
        "                self._keep_checkpoint_aside()\n",
        "                pass\n",
        "case checkpoint-damage 300",
    ),
    Guard(
        "callers-that-are-killed",
        "I4",
        "a plugin that is killed while it registers does not end the kubelet's end",
        "src/devplug/kubelet/registration.py",
        "            if not client.taken_on.cancelled():\n",
        "            if True:\n",
        "tests/kubelet/test_registration.py",
    ),
)
