"""Measures other stores for comparison with our rows: the same bytes in eight values, over the same
transport, by one client that waits for each payload. A peer that cannot be installed or run here
gets a row that states the reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

FOLDER = Path(__file__).parent / "peers"
PYTHON = Path(__file__).parents[3] / "build" / "peers-venv" / "bin" / "python"


@dataclass(frozen=True)
class Peer:
    """A peer's driver, the transports to measure, and whether its gets look up names. If they do,
    that lookup is in the measured time, so it is compared with our get that includes a lookup."""

    driver: str
    transports: tuple[str, ...]
    has_names: bool


PEERS = {
    "Redis": Peer("redis_side.py", ("shm", "tcp"), has_names=True),
    "Mooncake store": Peer("mooncake_side.py", ("tcp",), has_names=True),
    "NIXL": Peer("nixl_side.py", ("shm", "tcp"), has_names=False),
}
# Our figure -> the peer's operation that it is compared with, and the name of the joint row.
OURS = {
    "put": ("put", "put_beside_peer"),
    "put_foreign": ("put", "put_foreign_beside_peer"),
    "get_hot": ("get", "get_beside_peer"),
    "get_by_path": ("get", "get_by_path_beside_peer"),
}
LIMIT_S = 300


def rates(driver: str, transport: str, size: int, runs: int) -> dict[str, list[float]]:
    """GB/s of puts and gets. RuntimeError, with the reason, if they could not be measured."""
    if not PYTHON.exists():
        raise RuntimeError(f"there is no {PYTHON.parents[1]}; see why above")
    command = [str(PYTHON), str(FOLDER / driver), "--transport", transport]
    command += ["--bytes", str(size), "--runs", str(runs)]
    environment = os.environ | {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
    # The driver has its own session, so that killing the session ends the processes it started.
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as driving:
        try:
            said = driving.communicate(timeout=LIMIT_S)[0].splitlines()
        except subprocess.TimeoutExpired:
            os.killpg(driving.pid, signal.SIGKILL)
            raise RuntimeError(f"it took longer than {LIMIT_S} s") from None
    for line in said:
        if driving.returncode == 0 and line.startswith('{"put"'):
            return json.loads(line)
    told = [line.strip() for line in said if line.strip()]
    raise RuntimeError(told[-1] if told else f"it ended with {driving.returncode}")


def beside(row: Row, name: str, got: dict[str, list[float]] | str) -> Row:
    """A row of our rounds with the peer's rounds as the ceiling, or with the reason for none."""
    move, bench = OURS[row["bench"]]
    params = {of: row["params"][of] for of in ("transport", "bytes")}
    made: Row = {"bench": bench, "params": {"peer": name, **params}}
    made |= {"unit": "GB/s", "ceiling_name": f"{name}, {move}"}
    if "values" not in row:
        return made | {"why_not": f"ours: {row['why_not']}"}
    if isinstance(got, str):
        return made | {"why_not": got}
    return made | {"values": row["values"], "ceilings": got[move], "paired": False}


def measure(rows: list[Row]) -> list[Row]:
    """One row for each peer and each of our puts and gets of a pass by one client."""
    ours = [row for row in rows if row["bench"] in OURS and row["params"]["clients"] == 1]
    cases = dict.fromkeys((row["params"]["transport"], row["params"]["bytes"]) for row in ours)
    made = []
    for name, peer in PEERS.items():
        other_get = "get_hot" if peer.has_names else "get_by_path"
        for transport, size in cases:
            if transport not in peer.transports:
                continue
            of_case = [
                row
                for row in ours
                if (row["params"]["transport"], row["params"]["bytes"]) == (transport, size)
                and row["bench"] != other_get
            ]
            runs = max(len(row.get("values", [])) for row in of_case)
            got: dict[str, list[float]] | str = ""
            if runs:
                print(f"{name} over {transport}, {size >> 20} MiB", file=sys.stderr)
                try:
                    got = rates(peer.driver, transport, size, runs)
                except RuntimeError as why:
                    got = str(why)
            made += [beside(row, name, got) for row in of_case]
    return made
