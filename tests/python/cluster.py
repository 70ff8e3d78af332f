"""Nodes of a cluster: processes of precisd with a real etcd."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from precis.demo.service import Precisd, find_precisd


def free_port() -> int:
    """A port of the loopback that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Cluster(contextlib.AbstractContextManager):
    """Some nodes that share the shards, with a lease of 2 s."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        """Skips the test without etcd."""
        self._etcd_program = shutil.which("etcd")
        if self._etcd_program is None:
            pytest.skip("etcd is not installed (Debian package etcd-server)")
        self._folder = folder
        self._etcd: subprocess.Popen | None = None
        self._etcd_url = f"http://127.0.0.1:{free_port()}"
        self.nodes = []
        for n in range(nodes):
            config = folder / f"node-{n}.toml"
            settings = {"etcd": self._etcd_url, "node": f"node-{n}", "lease_s": 2}
            config.write_text(
                "".join(f"cluster_{key} = {json.dumps(value)}\n" for key, value in settings.items())
            )
            flags = ["--config", str(config), "--admin", "127.0.0.1:0"]
            self.nodes.append(Precisd(find_precisd(), folder / f"node-{n}", *flags))

    @property
    def address(self) -> str:
        """The addresses of all nodes, for clients."""
        return "precis://" + ",".join(node.address for node in self.nodes) + "/"

    def log(self, node: int) -> Path:
        """The file of a node's log."""
        return self._folder / f"node-{node}.log"

    def precisctl(self, node: int, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs precisctl against one node."""
        command = ["precisctl", "--address", self.nodes[node].address, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def state(self, node: int) -> dict[str, Any]:
        """The state of the cluster as the node reports it."""
        return json.loads(self.precisctl(node, "cluster", "status", "--json").stdout)

    def wait(self, node: int, good: Callable[[dict[str, Any]], bool]) -> None:
        """Returns when the node's state is good."""
        end = time.monotonic() + 60
        while not good(state := self.state(node)):
            assert time.monotonic() < end, state
            time.sleep(0.1)

    def kill_etcd(self) -> None:
        """Ends etcd at once."""
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()
            self._etcd = None

    def __enter__(self) -> Cluster:
        peer = f"http://127.0.0.1:{free_port()}"
        with (self._folder / "etcd.log").open("w") as log:
            self._etcd = subprocess.Popen(
                [
                    self._etcd_program,
                    f"--data-dir={self._folder}/etcd",
                    f"--listen-client-urls={self._etcd_url}",
                    f"--advertise-client-urls={self._etcd_url}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=default={peer}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            for node in self.nodes:
                node.start()
            for n in range(len(self.nodes)):
                self.wait(n, self._is_shared)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _is_shared(self, state: dict[str, Any]) -> bool:
        owners = [node for node in state["nodes"] if node["shards"] > 0]
        return state["state"] == "member" and len(owners) == len(self.nodes)

    def __exit__(self, *error: object) -> None:
        for node in self.nodes:
            node.kill()
        self.kill_etcd()
