"""The times of a run: how long the judge watches and waits, in seconds; all times of the checks are here.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Times:
    """The times of one run. A rule's own limit is in `..._limit_seconds`; all else is how long to look."""

    start_seconds: float = 30.0
    """How long a started plugin has until it is registered."""
    dial_seconds: float = 10.0
    """How long the kubelet dials a plugin that registers, and asks for its options (v1beta1/client.go)."""
    answer_seconds: float = 10.0
    """How long any single call is waited for."""
    call_limit_seconds: float = 5.0
    """How soon a single Allocate should be answered."""
    quick_call_limit_seconds: float = 0.1
    """How soon nearly every Allocate should be."""
    options_limit_seconds: float = 1.0
    """How soon the options should be: so long the kubelet waits in plugins_registry (plugin_watcher)."""
    preference_limit_seconds: float = 1.0
    """How soon a preference should be."""
    first_list_limit_seconds: float = 5.0
    """How long after the stream's opening the first list may come."""
    claim_limit_seconds: float = 45.0
    """How long the kubelet waits for NodePrepareResources (kubelet/cm/dra/plugin/dra_plugin.go)."""
    quick_claim_limit_seconds: float = 5.0
    """How soon a claim should be prepared where nothing is in the way."""
    slow_answer_seconds: float = 3.0
    """How long a slow API server takes for each answer."""
    health_seconds: float = 30.0
    """How long the kubelet believes a report of health that does not say (kubelet/cm/dra/healthinfo.go)."""
    slices_seconds: float = 65.0
    """How long deleted slices are waited for before they count as lost. Upstream's helper looks 30 s after an
    event, and 60 s after it wrote slices itself (resourceslicecontroller.go, DefaultSyncDelay and
    DefaultMutationCacheTTL)."""
    republish_limit_seconds: float = 5.0
    """How soon deleted slices should be back, and all slices of a start there."""
    silence_seconds: float = 10.0
    """How long a plugin is watched where nothing changes."""
    slow_kubelet_seconds: float = 10.5
    """How long a slow kubelet lets a plugin wait for the answer to Register: its own dial may take 10 s."""
    refusing_seconds: float = 4.0
    """How long a kubelet refuses every registration."""
    down_seconds: float = 4.0
    """How long a kubelet is away, where that is more than a restart."""
    return_seconds: float = 30.0
    """How long a plugin is waited for after a fault, before it counts as lost."""
    return_limit_seconds: float = 2.0
    """How soon it should be back."""
    first_pods_limit_seconds: float = 0.4
    """How soon after the kubelet's start devices should be listed: it admits pods after 0.47 s and more."""
    change_seconds: float = 15.0
    """How long a change of the devices is waited for."""
    notice_limit_seconds: float = 1.0
    """How soon the kubelet should know of it: within this, few pods are sent to what is not there."""
    end_seconds: float = 15.0
    """How long a plugin has to end after SIGTERM, before it is killed."""
    end_limit_seconds: float = 5.0
    """How soon it should have ended."""
    idle_seconds: float = 5.0
    """How long its idle processor time is measured."""
    settle_seconds: float = 1.0
    """How long the last effects of a fault are waited for."""
    clock_seconds: float = 1.1
    """How long until a time in whole seconds is another."""
    restarts: int = 20
    """How many restarts of the kubelet come in a row."""
    burst_streams: int = 1000
    """How many streams come and go before memory is measured again."""
    calls: int = 100
    """How many calls a latency is taken from."""
    check_seconds: float = 120.0
    """How long one check may take in all."""
    run_seconds: float = 300.0
    """How long a whole run may take, with the ends of all that it has started."""


FULL: Final = Times()
FULL_DRIVER: Final = Times(run_seconds=600.0)
"""For DRA drivers: several checks wait for slices that upstream's helper restores after up to a minute."""
QUICK: Final = Times(silence_seconds=2.0, slow_answer_seconds=1.0, idle_seconds=2.0, calls=50)
