"""The compose file: its form, and its programs on the addresses of this host.

No container engine takes part. Each container gets an address of 127.0.0.0/8 instead of its name.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from containers import Folders
from kv import put_all, random_layers, toy_spec

import precis

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "deploy/compose/compose.yaml"
TOOLS = ROOT / "build/deploy-venv"
TOKEN = "a word that nobody guesses"

needs_tools = pytest.mark.skipif(
    not (TOOLS / "requirements.txt").exists(), reason="./dev setup --deploy makes build/deploy-venv"
)


def run_reader(file: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    command = [TOOLS / "bin/python", ROOT / "tests/deploy/read_compose.py", file, *variables]
    return subprocess.run(command, capture_output=True, text=True)


def read_compose(file: Path = COMPOSE) -> dict[str, Any]:
    done = run_reader(file, f"PRECIS_TOKEN={TOKEN}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def volumes_of(service: dict[str, Any]) -> list[str]:
    """The folders of a container that are mounted."""
    return [volume.split(":")[1] for volume in service["volumes"]]


def node_folders(file: dict[str, Any], name: str, folder: Path) -> Folders:
    """The folders of a node, with its settings and its token."""
    service = file["services"][name]
    # The image has a volume for the socket.
    paths = ("/etc/precis", "/run/precis", "/run/secrets", *volumes_of(service))
    folders = Folders(folder / name, *paths)
    for config in service["configs"]:
        folders.write(config["target"], file["configs"][config["source"]]["content"])
    for secret in service["secrets"]:
        assert file["secrets"][secret["source"]] == {"environment": "PRECIS_TOKEN"}
        folders.write(f"/run/secrets/{secret['target']}", TOKEN)
    return folders


@needs_tools
def test_the_compose_file_has_three_nodes_and_three_members_of_etcd() -> None:
    services = read_compose()["services"]
    assert set(services) == {f"{kind}-{n}" for kind in ("etcd", "precis") for n in (1, 2, 3)}
    volumes = [volume for service in services.values() for volume in service["volumes"]]
    assert len(set(volumes)) == len(services)  # none is shared
    for name, service in services.items():
        own = service["hostname"] if "hostname" in service else service["environment"]["ETCD_NAME"]
        assert own == name
    done = run_reader(COMPOSE)
    assert done.returncode == 1 and "PRECIS_TOKEN" in done.stderr  # it has no default


@needs_tools
@pytest.mark.parametrize(
    ("was", "wrong", "named"),
    [
        ("hostname: precis-1", "hostnam: precis-1", "hostnam"),
        ("precis-2:/var", "other:/var", "other"),
        ("{source: token,", "{source: other,", "other"),
        ("$$HOSTNAME:7470", "$HOSTNAME:7470", "variable"),
    ],
)
def test_a_compose_file_with_an_error_is_refused(
    tmp_path: Path, was: str, wrong: str, named: str
) -> None:
    text = COMPOSE.read_text()
    assert was in text
    (tmp_path / "compose.yaml").write_text(text.replace(was, wrong))
    done = run_reader(tmp_path / "compose.yaml", f"PRECIS_TOKEN={TOKEN}")
    assert done.returncode == 1 and named in done.stderr


@needs_tools
@pytest.mark.parametrize(
    ("storage", "lines", "expected"),
    [
        ("", 0, {}),
        ("Ceph", 4, {"cluster_ceph_conf": "/etc/ceph/ceph.conf"}),
        (
            "S3",
            5,
            {"cluster_s3": "https://s3.example.com/precis", "cluster_s3_keys": "/etc/s3/keys"},
        ),
    ],
    ids=["nothing shared", "with Ceph", "with S3"],
)
def test_precisd_takes_the_settings_of_the_compose_file(
    tmp_path: Path, storage: str, lines: int, expected: dict[str, str]
) -> None:
    text = COMPOSE.read_text().splitlines()
    if storage:  # as the file's comment says
        marked = [line for line in text if line.endswith(f"# {storage}")]
        assert len(marked) == lines
        text = [line.replace("# ", "", 1) if line in marked else line for line in text]
    (tmp_path / "compose.yaml").write_text("\n".join(text))
    file = read_compose(tmp_path / "compose.yaml")
    for name in ("precis-1", "precis-2", "precis-3"):
        service = file["services"][name]
        folders = node_folders(file, name, tmp_path)
        folders.check(service["entrypoint"], tmp_path, HOSTNAME=name, **service["environment"])
        settings = tomllib.loads(folders.read("/run/precis/precisd.toml"))
        assert settings["cluster_node"] == name
        assert settings["cluster_address"] == f"{name}:7470"
        shared = {key: settings[key] for key in settings if "ceph" in key or "s3" in key}
        assert shared == {key: folders.here(path) for key, path in expected.items()}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The programs of all containers; the address of each node by its name."""
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (Debian package etcd-server)")
    file = read_compose()
    addresses = {
        name: f"127.{os.getpid() % 250 + 2}.74.{n}" for n, name in enumerate(file["services"], 1)
    }
    text = json.dumps(file)
    for name, address in addresses.items():
        text = text.replace(f"//{name}:", f"//{address}:")
    text = text.replace("/usr/local/bin/etcd", "etcd")
    started = []
    log = (tmp_path / "log").open("w")
    try:
        for name, address in addresses.items():
            # Each container has a network of its own.
            file = json.loads(text.replace("0.0.0.0", address))
            service = file["services"][name]
            if name.startswith("etcd"):
                folders = Folders(tmp_path / name, *volumes_of(service))
            else:
                folders = node_folders(file, name, tmp_path)
            given = {key: folders.here(value) for key, value in service["environment"].items()}
            started.append(
                subprocess.Popen(
                    folders.command(service["entrypoint"]),
                    env={**os.environ, **given, "HOSTNAME": address},
                    stdout=log,
                    stderr=log,
                )
            )
        yield {name: f"{at}:7470" for name, at in addresses.items() if name.startswith("precis")}
        for process in reversed(started):
            assert process.poll() is None, (tmp_path / "log").read_text()
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
    finally:
        for process in started:
            process.kill()
            process.wait()
        log.close()


def cluster_of(address: str) -> dict[str, Any]:
    """The cluster's state from precisctl; empty while precisctl gets no answer."""
    command = ["precisctl", "--address", address, "--tenant", "default", "--token", TOKEN]
    done = subprocess.run(
        [*command, "--timeout", "2s", "--json", "cluster", "status"], capture_output=True, text=True
    )
    return json.loads(done.stdout) if done.returncode == 0 else {}


@needs_tools
def test_the_programs_of_the_compose_file_form_a_cluster(running: dict[str, str]) -> None:
    # A node that has not read the newest table of owners still takes puts for shards that moved.
    end = time.monotonic() + 60
    for address in running.values():
        owned: list[int] = []
        while sum(owned) != 16384 or len(owned) < 3 or 0 in owned:
            assert time.monotonic() < end, (address, owned)
            time.sleep(0.2)
            owned = [node["shards"] for node in cluster_of(address).get("nodes", ())]
    url = f"precis://{','.join(running.values())}/"
    with precis.connect(url, tenant="default", token=TOKEN) as cache:
        model = cache.register_model(toy_spec(name="toy"))
        for first in range(0, 5000, 1000):
            tokens = list(range(first, first + 100))
            put_all(cache, model, tokens, random_layers(model.spec, 100), keep=0.5)
            assert cache.lookup(model, tokens).matched_tokens > 0
