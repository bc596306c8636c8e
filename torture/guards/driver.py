"""The guards of the DRA driver: claims in use, their CDI files, and who may have a device."""

from __future__ import annotations

from typing import Final

from torture.guards.guard import Guard

__all__ = ["GUARDS"]

_SERVICE: Final = "src/devplug/driver/service.py"
_CLAIMS: Final = "src/devplug/driver/prepared_claims.py"
_ANY_ORDER: Final = "tests/driver/test_any_order.py"

GUARDS: Final = (
    Guard(
        "uses-are-noted-first",
        "I12",
        "a claim is in the state file before a device is touched for it",
        _SERVICE,
        "                await store.begin(use)\n",
        "                store.claims[use.uid] = use\n",
        _ANY_ORDER,
    ),
    Guard(
        "no-start-with-released-devices",
        "I1",
        "the CDI file of a claim is gone before its devices are released",
        _SERVICE,
        "            self._store.unpublish(use.uid)\n",
        "",
        _ANY_ORDER,
    ),
    Guard(
        "claims-that-still-hold",
        "I1",
        "a device is taken over only from a claim that the API server says has released it",
        _SERVICE,
        "            if any(device.excludes(wanted) for wanted in use.devices) and still_holds(\n",
        "            if False and still_holds(\n",
        "tests/driver/test_service.py::test_a_device_is_never_in_two_claims_that_both_are_allocated",
    ),
    Guard(
        "devices-of-another-boot",
        "I1",
        "a CDI file of an earlier boot is removed: its paths may be those of other devices",
        _CLAIMS,
        "            if use.boot_id != self._boot_id:\n",
        "            if False:\n",
        "tests/driver/test_prepared_claims.py::test_after_a_reboot_nothing_is_prepared_and_all_is_still_in_use",
    ),
    Guard(
        "ends-of-uses-are-noted",
        "I14",
        "a use whose devices were released is in the state file no more",
        _SERVICE,
        "            await self._store.end(use.uid)\n",
        "            del self._store.claims[use.uid]\n",
        "case driver-dies-in-claims 60",
    ),
    Guard(
        "remains-of-the-dead",
        "I13",
        "what a driver was writing when it was killed is removed by the next one",
        _CLAIMS,
        "        remove_remains(path)\n",
        "",
        "case driver-dies-in-claims 60",
    ),
    Guard(
        "no-node-of-another-device",
        "I1",
        "the CDI file of a claim leads nowhere while its device is gone",
        "src/devplug/driver/claim_spec.py",
        "        return unplugged(device)\n",
        "        return device\n",
        "tests/driver/test_refresher.py::test_only_paths_on_the_host_change_and_back_to_where_they_were",
    ),
    Guard(
        "whole-lines-of-claims",
        "I12",
        "what a power cut leaves of a line, and what is after it, is no use of a claim",
        "src/devplug/driver/claim_log.py",
        "            return claims, None\n",
        "            continue\n",
        "tests/driver/test_claim_log.py",
    ),
    Guard(
        "published-is-what-there-is-now",
        "I15",
        "the publisher goes by the last list of devices that it was given",
        "src/devplug/driver/publisher.py",
        "        self._offered = devices\n",
        "        self._offered = self._offered or devices\n",
        "case api-server-away-from-claims 2",
    ),
    Guard(
        "claims-only-take-away",
        "I11",
        "a claim, which anybody may write, adds no permissions to a device",
        "src/devplug/driver/parameters.py",
        '    if more := "".join(word for word in wanted if word not in limit):\n',
        '    if more := "":\n',
        "tests/driver/test_parameters.py",
    ),
    Guard(
        "uids-are-no-paths",
        "I11",
        "a UID that leads out of the CDI folder is no UID",
        "src/devplug/driver/claims.py",
        "    if not is_uid(claim.uid):\n",
        "    if False:\n",
        "tests/driver/test_service.py::test_a_uid_that_is_a_path_is_refused_and_no_file_is_touched",
    ),
)
