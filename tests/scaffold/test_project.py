"""A new project: which names it may have, and what its files say."""

from __future__ import annotations

import ast
import importlib.util
import keyword
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from devplug import __version__
from devplug.cli.new import write_project
from devplug.k8s.resource_names import resource_name_fault
from devplug.kubelet_dir import KUBELET_PLUGIN_DIR, KUBELET_ROOT
from devplug.scaffold.project import NAME_LIMIT, TRIAL_NODES, Project, project_faults, project_files


def faults_of(name: str) -> tuple[str, ...]:
    return project_faults(Project(name, "example.com/a"))


@pytest.mark.parametrize("name", ["a", "fpga", "my-fpga", "x2-y3-z", "a" * NAME_LIMIT])
def test_a_plain_name_will_do(name: str) -> None:
    assert faults_of(name) == ()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("my_fpga", "my-fpga"),
        ("My FPGA", "my-fpga"),
        ("my--fpga-", "my-fpga"),
        ("../fpga", "fpga"),
        ("3d-printer", "d-printer"),
        ("class", "class-plugin"),
        ("json", "json-plugin"),
        ("devplug", "devplug-plugin"),
        ("tests", "tests-plugin"),
    ],
)
def test_the_refusal_of_a_name_names_a_better_one(name: str, advice: str) -> None:
    (fault,) = faults_of(name)
    assert fault.endswith(f'"{advice}"')
    assert faults_of(advice) == ()


@pytest.mark.parametrize("name", ["", "-", "12", "é"])
def test_the_refusal_of_a_name_without_anything_to_keep_says_the_rule(name: str) -> None:
    (fault,) = faults_of(name)
    assert fault.endswith("a letter first")


def test_a_name_that_fits_into_no_label_is_refused() -> None:
    (fault,) = faults_of("a" * (NAME_LIMIT + 1))
    assert "at most 63" in fault


def test_every_fault_of_both_names_is_told() -> None:
    first, second = project_faults(Project("My", "kubernetes.io/my"))
    assert first.startswith('name "My" must be')
    assert second.startswith('resource name "kubernetes.io/my" contains')


@given(st.text(max_size=70) | st.from_regex(r"[a-z0-9_-]{1,70}", fullmatch=True))
def test_a_name_without_a_fault_is_good_for_all_that_it_names(name: str) -> None:
    if faults_of(name):
        return
    package = Project(name, "example.com/a").package
    assert package.isidentifier()
    assert not keyword.iskeyword(package)
    assert package not in sys.stdlib_module_names
    assert resource_name_fault(f"example.com/{name}") is None


FPGA = Project("my-fpga", "fpga.example.com/card")
FILES = project_files(FPGA, __version__)
POD_RESOURCES = f"{KUBELET_ROOT}/pod-resources"
NAMES = st.from_regex(rf"[a-z][a-z0-9-]{{0,{NAME_LIMIT - 1}}}", fullmatch=True)
PROJECTS = st.builds(lambda name: Project(name, f"example.com/{name}"), NAMES).filter(
    lambda project: not project_faults(project)
)
needs_ruff = pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")


def daemon_set() -> dict[str, Any]:
    (manifest,) = yaml.safe_load_all(FILES["deploy/daemonset.yaml"])
    assert isinstance(manifest, dict)
    return manifest


def pod_spec() -> dict[str, Any]:
    spec: dict[str, Any] = daemon_set()["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    (only,) = pod_spec()["containers"]
    assert isinstance(only, dict)
    return only


# ── all files ─────────────────────────────────────────────────────────────────────────────────────


@given(PROJECTS)
def test_files_are_well_formed_under_every_name(project: Project) -> None:
    for path, text in project_files(project, __version__).items():
        assert not re.search("@[A-Z]+@", path + text), path
        if path.endswith(".py"):
            ast.parse(text)
        elif path.endswith(".yaml"):
            assert yaml.safe_load(text)
        elif path.endswith(".toml"):
            assert tomllib.loads(text)["project"]["name"] == project.name


@given(PROJECTS)
def test_modules_lie_in_the_package_that_they_import(project: Project) -> None:
    files = project_files(project, __version__)
    for path, text in files.items():
        if path.endswith(".py"):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{project.package}."):
                    assert f"src/{str(node.module).replace('.', '/')}.py" in files


@needs_ruff
def test_the_linter_and_the_formatter_have_nothing_to_say(tmp_path: Path) -> None:
    write_project(tmp_path / "made", FILES)
    for arguments in (["check"], ["format", "--diff"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "."]
        done = subprocess.run(command, cwd=tmp_path / "made", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_project_asks_for_the_devplug_that_made_it() -> None:
    assert tomllib.loads(FILES["pyproject.toml"])["project"]["dependencies"] == [f"devplug~={__version__}"]


def test_a_pod_of_the_readme_asks_for_the_resource() -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", FILES["README.md"], re.MULTILINE | re.DOTALL)
    (user,) = yaml.safe_load(example)["spec"]["containers"]
    assert user["resources"] == {"limits": {"fpga.example.com/card": 1}}


def test_kubectl_is_shown_the_resource_by_a_path_that_it_understands() -> None:
    assert r".status.allocatable.fpga\.example\.com/card'" in FILES["README.md"]


# ── the DaemonSet ─────────────────────────────────────────────────────────────────────────────────


def test_the_container_has_no_privilege() -> None:
    assert container()["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod_spec()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod_spec()["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(pod_spec())


def test_the_container_is_root_as_the_kubelets_socket_is_roots() -> None:
    assert pod_spec()["securityContext"]["runAsUser"] == 0


def test_only_the_plugin_folder_is_writable() -> None:
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod_spec()["volumes"]}
    mounts = {
        (paths[mount["name"]], mount["mountPath"]): mount.get("readOnly", False)
        for mount in container()["volumeMounts"]
    }
    assert mounts == {
        (KUBELET_PLUGIN_DIR, KUBELET_PLUGIN_DIR): False,
        (POD_RESOURCES, POD_RESOURCES): True,
        ("/dev", "/dev"): True,
    }
    assert not container()["terminationMessagePath"].startswith("/dev/")


def test_every_machine_has_one_plugin_at_a_time_that_is_not_evicted() -> None:
    assert daemon_set()["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }
    assert pod_spec()["priorityClassName"] == "system-node-critical"
    assert pod_spec()["tolerations"] == [{"operator": "Exists"}]
    assert container()["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container()["resources"]["limits"].keys() == {"memory"}


def test_the_selector_finds_the_pods() -> None:
    spec = daemon_set()["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_the_container_serves_what_the_plugin_serves_by_itself() -> None:
    (glob,) = container()["args"]
    assert f'\nGLOB = "{glob}"\n' in FILES["src/my_fpga/plugin.py"]


# ── the image and CI ──────────────────────────────────────────────────────────────────────────────


def test_the_image_runs_the_package_and_brings_no_source() -> None:
    build, image = FILES["Dockerfile"].split("\n\n")
    assert "pip install --no-cache-dir .\n" in f"{build}\n"
    assert re.findall("^COPY .*", image, re.MULTILINE) == ["COPY --from=build /opt/venv /opt/venv"]
    assert image.endswith('ENTRYPOINT ["/opt/venv/bin/python", "-m", "my_fpga"]\n')


def test_ci_tests_and_judges_with_no_right_but_to_read() -> None:
    workflow = yaml.safe_load(FILES[".github/workflows/ci.yaml"])
    (job,) = workflow["jobs"].values()
    assert workflow["permissions"] == {}
    assert job["permissions"] == {"contents": "read"}
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert runs[-2:] == ["python -m pytest", f"devplug verify -- python -m my_fpga {' '.join(TRIAL_NODES)}"]
    actions = [step["uses"] for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+\.\d+\.\d+", action) for action in actions)


def test_the_readme_judges_as_ci_does() -> None:
    command = shlex.join(["devplug", "verify", "--", "python", "-m", "my_fpga", *TRIAL_NODES])
    assert f"$ {command}\n" in FILES["README.md"]
