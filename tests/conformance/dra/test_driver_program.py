"""The judged DRA driver finds the judge's folders, also at the paths that it has compiled in."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.dra.driver_program import DriverPlace, DriverSubject, program_of
from devplug.conformance.dra.testbed import DriverRun
from devplug.conformance.runner import judge_run
from devplug.conformance.verdicts import Outcome
from devplug.kubelet.pluginfolder import endpoint_path
from devplug.linux.processes import can_mount
from devplug.sandbox.scripted_api_server import scripted_api_server
from devplug.sandbox.server.listener import Tls
from tests.conformance.dra.trials import TIMES

WRITES = (
    "from pathlib import Path;"
    "[Path(path, 'made-by-a-judged-driver').touch() for path in "
    "('/etc/cdi', '/var/lib/kubelet/plugins', '/var/lib/kubelet/plugins_registry')];"
    "print(sorted(p.name for p in Path('/var/run/cdi').iterdir()))"
)


def place_in(root: Path) -> DriverPlace:
    for name in ("kubelet/plugins", "kubelet/plugins_registry", "cdi", "work"):
        (root / name).mkdir(parents=True)
    return DriverPlace(
        root / "kubelet", root / "cdi", root / "work", root / "kubeconfig", "node", "uid", root / "output"
    )


@pytest.mark.skipif(not can_mount(), reason="needs root")
async def test_compiled_in_folders_are_the_judges_own(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    program = await program_of(DriverSubject((sys.executable, "-c", WRITES)))(place)
    assert await program.wait(60)
    assert program.exit_code == 0, program.last_words()
    assert program.last_words() == "['made-by-a-judged-driver']"
    made = [path.relative_to(tmp_path).parts[:-1] for path in tmp_path.rglob("made-by-a-judged-driver")]
    assert sorted(made) == [("cdi",), ("kubelet", "plugins"), ("kubelet", "plugins_registry")]
    assert not Path("/var/lib/kubelet/plugins/made-by-a-judged-driver").exists()
    assert not Path("/etc/cdi/made-by-a-judged-driver").exists()


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("/var/lib/kubelet/plugins/a/dra.sock", "/judge/kubelet/plugins/a/dra.sock"),
        ("/judge/kubelet/plugins/a/dra.sock", "/judge/kubelet/plugins/a/dra.sock"),
        ("dra.sock", "dra.sock"),
    ],
)
def test_an_endpoint_below_the_compiled_in_folder_is_found(told: str, found: str) -> None:
    assert endpoint_path(told, Path("/judge/kubelet")) == Path(found)


async def test_a_driver_that_ends_at_once_is_quoted_once() -> None:
    subject = DriverSubject((sys.executable, "-c", "import sys; sys.exit('no GPU is there')"))
    run = DriverRun(program_of(subject), TIMES, scripted_api_server, subject)
    checks = [one for one in all_driver_checks() if one.id == "DRA01"]
    [verdict] = await judge_run(run, checks, jobs=1)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.seen == "the driver ended with 1 before it made one: no GPU is there"


IN_CLUSTER = """
import os, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
url = "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}".format(**os.environ)
context = ssl.create_default_context(cafile=f"{folder}/ca.crt")
headers = {"Authorization": "Bearer " + open(f"{folder}/token").read()}
request = urllib.request.Request(f"{url}/api/v1/nodes/" + os.environ["NODE_NAME"], headers=headers)
print(urllib.request.urlopen(request, context=context).status)
"""


@pytest.mark.skipif(not can_mount(), reason="needs root")
async def test_a_driver_reaches_the_api_server_with_its_service_account(tmp_path: Path) -> None:
    subject = DriverSubject((sys.executable, "-c", IN_CLUSTER))
    open_api = partial(scripted_api_server, tls=Tls.made_in(tmp_path))
    async with DriverRun(program_of(subject), TIMES, open_api, subject).bed() as bed:
        assert await bed.program.wait(60)
        assert bed.program.last_words() == "200"
