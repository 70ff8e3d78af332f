"""The Helm chart and the Containerfile, checked by Helm, by schemas of Kubernetes and by hadolint.

precisd checks what the chart configures. No cluster and no container engine takes part.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from precis.demo.service import find_precisd

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/precis"
CONTAINERFILE = ROOT / "deploy/container/Containerfile"
TOOLS = ROOT / "build/deploy-venv"
KUBERNETES = ("1.25", "1.37")  # the oldest version that the chart allows, and the newest known
ERROR = 3

needs_tools = pytest.mark.skipif(
    not (TOOLS / "requirements.txt").exists(), reason="./dev setup --deploy makes build/deploy-venv"
)
EVERYTHING = {
    "replicas": 2,
    "image": {"tag": "other"},
    "config": {"memory_bytes": "1GiB", "trim_ladder": [0.3, 0.1], "capacity_policy": "lru"},
    "tenants": [
        {"name": "search", "weight": 2, "salt": 'a"b'},
        {"name": "chat", "token": "x" * 20},
    ],
    "tls": {"secretName": "cert", "clientCa": True},
    "persistence": {"size": "2Ti", "storageClassName": "fast"},
    "gpu": {"enabled": True, "runtimeClassName": "nvidia"},
    "nodeSelector": {"disk": "nvme"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "podAnnotations": {"team": "search"},
}


def run_render(tmp_path: Path, values: dict, kubernetes: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "values.json").write_text(json.dumps(values))
    script = ROOT / "tests/deploy/render_chart.py"
    command = [TOOLS / "bin/python", script, CHART, tmp_path / "values.json", kubernetes]
    return subprocess.run(command, capture_output=True, text=True)


def render(tmp_path: Path, values: dict, kubernetes: str = KUBERNETES[-1]) -> dict[str, Any]:
    """The rendered objects by their kind; the chart has one of each."""
    done = run_render(tmp_path, values, kubernetes)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert not [message for message in said["lint"] if message["severity"] >= ERROR]
    return {part["kind"]: part for part in said["objects"]}


def container(objects: dict[str, Any]) -> dict[str, Any]:
    (only,) = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return only


@needs_tools
@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_the_chart_renders_objects_that_kubernetes_takes(
    tmp_path: Path, values: dict, kubernetes: str
) -> None:
    objects = render(tmp_path, values, kubernetes)
    assert set(objects) == {"ConfigMap", "Secret", "Service", "StatefulSet"}


@needs_tools
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_precisd_takes_the_configuration_that_the_chart_renders(
    tmp_path: Path, values: dict
) -> None:
    objects = render(tmp_path, values)
    text = objects["ConfigMap"]["data"]["precisd.toml"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(objects)["volumeMounts"]}
    # The folders of the container, in this test's.
    for name, path in mounts.items():
        (tmp_path / name).mkdir()
        text = text.replace(f'"{path}', f'"{tmp_path}/{name}')
    (config,) = [
        volume["projected"]["sources"]
        for volume in objects["StatefulSet"]["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "config"
    ]
    for secret in [source["secret"] for source in config if "secret" in source]:
        for item in secret["items"]:
            file = tmp_path / "config" / item["path"]
            file.parent.mkdir(exist_ok=True)
            if file.parent.name == "tokens":
                assert item["key"] in objects["Secret"]["data"]
                file.write_text("a token of enough characters")
                file.chmod(0o440)
    make_certificate(tmp_path / "config/tls")
    (tmp_path / "precisd.toml").write_text(text)
    command = [find_precisd(), "--check", "--config", tmp_path / "precisd.toml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def make_certificate(folder: Path) -> None:
    """A certificate that is its own CA, if the chart mounts one."""
    if not folder.exists():
        return
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test "
        "-keyout tls.key -out tls.crt",
        shell=True,
        cwd=folder,
        check=True,
        capture_output=True,
    )
    (folder / "tls.key").chmod(0o440)
    (folder / "ca.crt").write_bytes((folder / "tls.crt").read_bytes())


@needs_tools
def test_the_pod_runs_without_rights_and_with_a_root_that_it_cannot_write(tmp_path: Path) -> None:
    objects = render(tmp_path, {})
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # The image has the user that the pod runs as.
    user = pod["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in CONTAINERFILE.read_text().splitlines()
    # The service writes to volumes only.
    assert {"data", "run"} <= {mount["name"] for mount in container(objects)["volumeMounts"]}


@needs_tools
def test_a_gpu_is_asked_for_beside_the_other_resources(tmp_path: Path) -> None:
    limits = container(render(tmp_path, {"gpu": {"enabled": True}}))["resources"]["limits"]
    assert limits == {"memory": "8Gi", "nvidia.com/gpu": 1}


@needs_tools
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"tennants": []}, "tennants"),
        ({"config": {"listen": "1.2.3.4:1"}}, "listen"),
        ({"tenants": []}, "tenants"),
    ],
)
def test_values_that_the_chart_does_not_know_or_sets_itself_are_refused(
    tmp_path: Path, values: dict, named: str
) -> None:
    done = run_render(tmp_path, values, KUBERNETES[-1])
    assert done.returncode == 1
    assert named in done.stderr


@needs_tools
def test_hadolint_finds_nothing_in_the_containerfile() -> None:
    done = subprocess.run(
        [TOOLS / "bin/hadolint", "--failure-threshold", "style", CONTAINERFILE],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_chart_and_build_have_one_version() -> None:
    chart = (CHART / "Chart.yaml").read_text()
    project = re.search(r"project\(precis VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert re.findall(r"^(?:appVersion|version): (\S+)", chart, re.MULTILINE) == [project[1]] * 2
