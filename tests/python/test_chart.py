"""The Helm chart and the Containerfile, checked by Helm, by schemas of Kubernetes and by hadolint.

precisd checks what the chart configures. No cluster and no container engine takes part.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from containers import Folders

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
CLUSTER = {
    "replicas": 3,
    "tls": {"secretName": "cert"},
    "cluster": {
        "enabled": True,
        "etcd": {
            "endpoints": ["https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379"],
            "tls": {"secretName": "etcd-client"},
        },
        "leaseSeconds": 10,
        "weight": 200,
        "ceph": {"secretName": "ceph", "user": "client.cache", "pool": "cache"},
        "antiAffinity": "preferred",
    },
}
S3 = {
    "url": "https://s3.example.com:8443/precis-kv",
    "region": "eu-central-1",
    "secretName": "s3",
    "tls": {"secretName": "s3-ca"},
}
CLUSTER_S3 = {**CLUSTER, "cluster": {**CLUSTER["cluster"], "ceph": {}, "s3": S3}}
VALUES = [{}, EVERYTHING, CLUSTER, CLUSTER_S3]
VALUES_IDS = ["defaults", "everything", "cluster", "cluster with S3"]


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
@pytest.mark.parametrize("values", VALUES, ids=VALUES_IDS)
def test_the_chart_renders_objects_that_kubernetes_takes(
    tmp_path: Path, values: dict, kubernetes: str
) -> None:
    objects = render(tmp_path, values, kubernetes)
    more = {"PodDisruptionBudget"} if "cluster" in values else set()
    assert set(objects) == {"ConfigMap", "Secret", "Service", "StatefulSet"} | more


def check_configuration(tmp_path: Path, objects: dict[str, Any], pod_name: str) -> Folders:
    """Runs the pod's command with the files of its volumes; precisd only checks its settings."""
    volumes = {v["name"]: v for v in objects["StatefulSet"]["spec"]["template"]["spec"]["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container(objects)["volumeMounts"]}
    folders = Folders(tmp_path / pod_name, *mounts.values())
    assert set(mounts) == {"data", *volumes}
    folders.write(f"{mounts['config']}/precisd.toml", objects["ConfigMap"]["data"]["precisd.toml"])
    for source in volumes["config"]["projected"]["sources"]:
        for item in source.get("secret", {}).get("items", ()):
            if item["path"].startswith("tokens/"):
                assert item["key"] in objects["Secret"]["data"]
            folders.write(f"{mounts['config']}/{item['path']}", "a token of enough characters")
    for name in ("tls", "etcd", "s3"):
        make_certificate(Path(folders.here(mounts["config"])) / name)
    folders.check(container(objects)["command"], tmp_path, POD_NAME=pod_name)
    return folders


@needs_tools
@pytest.mark.parametrize("values", VALUES, ids=VALUES_IDS)
def test_precisd_takes_the_configuration_that_the_chart_renders(
    tmp_path: Path, values: dict
) -> None:
    objects = render(tmp_path, values)
    check_configuration(tmp_path, objects, "kv-precis-0")


@needs_tools
def test_each_pod_of_a_cluster_is_a_node_with_its_own_name_and_address(tmp_path: Path) -> None:
    objects = render(tmp_path, CLUSTER)
    service = objects["Service"]
    assert objects["StatefulSet"]["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    for name in ("kv-precis-0", "kv-precis-2"):
        folders = check_configuration(tmp_path, objects, name)
        settings = tomllib.loads(folders.read("/run/precis/precisd.toml"))
        assert {key: value for key, value in settings.items() if key.startswith("cluster_")} == {
            "cluster_node": name,
            "cluster_address": f"{name}.kv-precis.llm.svc:7470",
            "cluster_name": "llm.kv-precis",
            "cluster_etcd": "https://etcd-0.etcd:2379,https://etcd-1.etcd:2379",
            "cluster_tls_ca": folders.here("/etc/precis/etcd/ca.crt"),
            "cluster_tls_cert": folders.here("/etc/precis/etcd/tls.crt"),
            "cluster_tls_key": folders.here("/etc/precis/etcd/tls.key"),
            "cluster_weight": 200,
            "cluster_lease_s": 10,
            "cluster_ceph_conf": folders.here("/etc/ceph/ceph.conf"),
            "cluster_ceph_user": "client.cache",
            "cluster_ceph_pool": "cache",
        }


@needs_tools
def test_the_nodes_of_a_cluster_share_a_bucket_of_s3(tmp_path: Path) -> None:
    objects = render(tmp_path, CLUSTER_S3)
    folders = check_configuration(tmp_path, objects, "kv-precis-0")
    settings = tomllib.loads(folders.read("/run/precis/precisd.toml"))
    assert {key: settings[key] for key in settings if "s3" in key or "ceph" in key} == {
        "cluster_s3": "https://s3.example.com:8443/precis-kv",
        "cluster_s3_keys": folders.here("/etc/precis/s3/keys"),
        "cluster_s3_region": "eu-central-1",
        "cluster_s3_ca": folders.here("/etc/precis/s3/ca.crt"),
    }
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    (config,) = (volume for volume in pod["volumes"] if volume["name"] == "config")
    secrets = [source["secret"] for source in config["projected"]["sources"] if "secret" in source]
    mounted = {
        item["path"]: (secret["name"], item["key"])
        for secret in secrets
        for item in secret["items"]
    }
    assert mounted["s3/keys"] == ("s3", "keys")
    assert mounted["s3/ca.crt"] == ("s3-ca", "ca.crt")
    # Without a CA in the values, the service trusts the system's CAs.
    values = {**CLUSTER_S3["cluster"], "s3": {**S3, "tls": {}}}
    objects = render(tmp_path, {**CLUSTER_S3, "cluster": values})
    assert "cluster_s3_ca" not in objects["ConfigMap"]["data"]["precisd.toml"]
    assert "s3/ca.crt" not in json.dumps(objects["StatefulSet"])


@needs_tools
def test_the_nodes_of_a_cluster_are_apart_and_leave_one_after_another(tmp_path: Path) -> None:
    values = {"replicas": 3, "cluster": {"enabled": True, "etcd": {"endpoints": ["http://e:2379"]}}}
    objects = render(tmp_path, values)
    stateful = objects["StatefulSet"]["spec"]
    pod = stateful["template"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (spread,) = pod["topologySpreadConstraints"]
    budget = objects["PodDisruptionBudget"]["spec"]
    for selector in (apart["labelSelector"], spread["labelSelector"], budget["selector"]):
        assert selector["matchLabels"] and selector["matchLabels"].items() <= labels.items()
    assert budget["maxUnavailable"] == 1
    # A node that stops copies what waits for the shared storage; this takes a lease at most.
    lease = tomllib.loads(objects["ConfigMap"]["data"]["precisd.toml"])["cluster_lease_s"]
    assert pod["terminationGracePeriodSeconds"] >= 60 + lease
    assert stateful["minReadySeconds"] >= lease
    # An upgrade waits for a node that is no member, but Kubernetes does not restart the node.
    container = pod["containers"][0]
    asks = {
        probe: container[probe]["exec"]["command"][-1] for probe in container if "Probe" in probe
    }
    assert asks == {
        "startupProbe": "status",
        "readinessProbe": "--ready",
        "livenessProbe": "status",
    }
    # The affinity that the values give holds too.
    with_disk = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    only = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [with_disk]}}
    given = {"nodeAffinity": only}
    merged = render(tmp_path, {**values, "affinity": given})["StatefulSet"]["spec"]["template"]
    assert merged["spec"]["affinity"] == {**pod["affinity"], **given}


@needs_tools
def test_a_chart_without_a_cluster_renders_nothing_of_it(tmp_path: Path) -> None:
    for values in ({}, EVERYTHING):
        assert "cluster_" not in json.dumps(render(tmp_path, values))
    for values in (CLUSTER, CLUSTER_S3):
        objects = render(tmp_path, {"cluster": {**values["cluster"], "enabled": False}})
        for part in ("ConfigMap", "Service", "StatefulSet"):
            assert objects[part] == render(tmp_path, {})[part]


def make_certificate(folder: Path) -> None:
    """Writes a self-signed certificate into the folder, if the chart mounts the folder."""
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
        ({"config": {"cluster_etcd": "http://e:2379"}}, "cluster_etcd"),
        ({"cluster": {"enabled": True}}, "endpoints"),
        ({"cluster": {"enabled": True, "etcd": {"endpoints": ["e:2379"]}}}, "endpoints"),
        ({"cluster": {"leaseSeconds": 1}}, "leaseSeconds"),
        ({"cluster": {"s3": {**S3, "url": "s3.example.com/precis-kv"}}}, "url"),
        ({"cluster": {"s3": {**S3, "secretName": ""}}}, "secretName"),
        ({"cluster": {"s3": S3, "ceph": {"secretName": "ceph"}}}, "secretName"),
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
