"""The options, choices and waits of ./dev cluster. Programs that only sleep are the cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_dev import ROOT, put_script

# ./dev recognizes a running program by the name of its file.
SLEEPING = '#!/bin/bash\n{before}\nexec "{checkout}/sleeping/{name}" 600\n'
S3_SETTINGS = 'cluster_s3 = "http://127.0.0.1:1/b"'


class Checkout:
    """The files of a checkout that ./dev cluster reads, and programs in place of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = folder / "build/cluster"
        for name in ("dev", "deploy/debian-packages.txt", "tests/integration/requirements.txt"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        (folder / "build/s3-venv").mkdir(parents=True)
        shutil.copy(
            folder / "tests/integration/requirements.txt",
            folder / "build/s3-venv/requirements.txt",
        )
        put_script(folder / "tools/dpkg-query", "#!/bin/sh\necho installed\n")
        for name, before in {
            "tools/etcd": "",
            "build/release/bin/precisd": "",
            "build/release/bin/precis_s3": f"echo '{S3_SETTINGS}' >\"$1\"",
        }.items():
            self.put_program(name, before)
        self.put_states("member", "member")

    def put_program(self, path: str, before: str) -> None:
        name = Path(path).name
        (self.folder / "sleeping").mkdir(exist_ok=True)
        shutil.copy("/bin/sleep", self.folder / "sleeping" / name)
        script = SLEEPING.format(before=before, checkout=self.folder, name=name)
        put_script(self.folder / path, script)

    def put_states(self, first: str, second: str) -> None:
        """Sets the states that the nodes report."""
        rows = "".join(
            f'{{"name": "node-{n}",\n"draining": false,\n"shards": 8192}},\n' for n in (1, 2)
        )
        put_script(
            self.folder / "build/release/bin/precisctl",
            "#!/bin/bash\ncase $* in *:24801*) state="
            f"{first} ;; *) state={second} ;; esac\n"
            f'cat <<END\n"state": "$state",\n{rows}"loading": 0,\nEND\n',
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["./dev", "cluster", *arguments],
            cwd=self.folder,
            env=os.environ | {"PATH": f"{self.folder}/tools:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )

    def up(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("up", "--no-build", *arguments)

    def started(self, *arguments: str) -> str:
        up = self.up(*arguments)
        assert up.returncode == 0, up.stdout
        return up.stdout

    def settings(self, node: int) -> str:
        return (self.cluster / f"node-{node}.toml").read_text()

    def pid(self, name: str) -> int:
        return int((self.cluster / f"{name}.pid").read_text())

    def kill(self, name: str) -> None:
        pid = self.pid(name)
        os.kill(pid, 9)
        # This process is not the parent of the program, so it cannot call waitpid.
        while Path(f"/proc/{pid}/exe").exists():
            pass


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout(tmp_path)
    yield made
    made.run("down")


def test_a_cluster_shares_one_storage(checkout):
    both = checkout.up("--ceph", "--s3")
    assert both.returncode == 2
    assert "--ceph and --s3 exclude each other" in both.stdout
    assert not checkout.cluster.exists()


@pytest.mark.parametrize("command", ["up", "status", "down"])
def test_help_is_shown_for_each_command_of_a_cluster(checkout, command):
    shown = checkout.run(command, "--help")
    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.startswith("./dev cluster up")


def test_up_starts_a_node_again_with_the_storage_of_the_others(checkout):
    checkout.started("--s3", "--nodes", "2")
    first, second = checkout.settings(1), checkout.settings(2)
    assert S3_SETTINGS in first and S3_SETTINGS in second
    running = {name: checkout.pid(name) for name in ("etcd", "s3", "node-1")}
    checkout.kill("node-2")
    (checkout.cluster / "node-2.toml").unlink()
    checkout.started()
    assert checkout.settings(2) == second
    assert checkout.settings(1) == first
    assert running == {name: checkout.pid(name) for name in running}
    assert not (checkout.cluster / "node-3.pid").exists()


def test_up_keeps_the_settings_of_a_running_node(checkout):
    checkout.started("--nodes", "1")
    settings = checkout.cluster / "node-1.toml"
    settings.write_text("changed by hand")
    checkout.started()
    assert settings.read_text() == "changed by hand"


@pytest.mark.parametrize("had", ["", "ceph", "s3"])
def test_up_refuses_another_storage_until_down(checkout, had):
    checkout.cluster.mkdir()
    (checkout.cluster / "choices").write_text(f"2 {had}\n")
    other = "--s3" if had != "s3" else "--ceph"
    up = checkout.up(other)
    assert up.returncode == 1
    assert f"was started {f'with --{had}' if had else 'without a storage'}" in up.stdout
    assert f"with {other}, run first ./dev cluster down" in up.stdout
    assert not (checkout.cluster / "node-1.pid").exists()
    assert checkout.run("down").returncode == 0
    if other == "--s3":
        checkout.started(other, "--nodes", "1")


def test_up_refuses_to_make_a_lost_storage_anew_for_some_nodes(checkout):
    checkout.started("--s3", "--nodes", "2")
    checkout.kill("s3")
    checkout.kill("node-2")
    up = checkout.up()
    assert up.returncode == 1
    assert "s3 does not run" in up.stdout and "./dev cluster down" in up.stdout


def test_up_waits_until_the_nodes_are_members(checkout):
    # The second node is a member when it is asked for the third time.
    count = '$(echo >>"$0.asked"; [ $(wc -l <"$0.asked") -gt 2 ] && echo member || echo joining)'
    checkout.put_states("member", count)
    said = checkout.started("--nodes", "2")
    asked = checkout.folder / "build/release/bin/precisctl.asked"
    assert len(asked.read_text()) >= 3
    assert "to use it" in said


def test_up_fails_if_a_node_is_no_member_in_time(checkout):
    dev = checkout.folder / "dev"
    dev.write_text(dev.read_text().replace("cluster_patience_s=30", "cluster_patience_s=2"))
    checkout.put_states("member", "joining")
    up = checkout.up("--nodes", "2")
    assert up.returncode == 1
    assert "waiting for node-2 to join" in up.stdout
    assert "node-2 is no member with its shards after 2 s" in up.stdout
    assert "its log is build/cluster/node-2.log" in up.stdout
    assert "node-1 is" not in up.stdout and "to use it" not in up.stdout


def test_up_fails_if_a_node_ends(checkout):
    checkout.put_program("build/release/bin/precisd", "case $* in *node-2*) exit 1 ;; esac")
    up = checkout.up("--nodes", "2")
    assert up.returncode == 1
    assert "node-2 has ended; its log is build/cluster/node-2.log" in up.stdout
    assert "node-1 has" not in up.stdout


def test_up_starts_a_node_that_was_still_stopping(checkout):
    checkout.started("--nodes", "2")
    stopping = checkout.pid("node-2")
    # The second node ends when the first is asked.
    end = f"kill -9 {stopping} 2>&-; while [ -e /proc/{stopping}/exe ]; do :; done"
    checkout.put_states(f"$({end}; echo member)", "member")
    checkout.started()
    assert checkout.pid("node-2") != stopping
    assert Path(f"/proc/{checkout.pid('node-2')}/exe").exists()


def test_up_prints_every_address(checkout):
    said = checkout.started("--nodes", "2")
    assert "http://127.0.0.1:24790" in said  # etcd
    for node in (1, 2):
        assert f"127.0.0.1:2480{node}, for operators http://127.0.0.1:2490{node}/" in said
        assert f'admin = "127.0.0.1:2490{node}"' in checkout.settings(node)
    assert "precis://127.0.0.1:24801,127.0.0.1:24802/" in said
