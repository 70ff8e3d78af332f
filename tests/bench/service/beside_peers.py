"""Other stores beside our rows: the same bytes in eight values, over the same transport, by one
client that waits for each payload. What cannot be installed or run here is a row that says why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

Row = dict[str, Any]

FOLDER = Path(__file__).parent / "peers"
PYTHON = Path(__file__).parents[3] / "build" / "peers-venv" / "bin" / "python"
# Each peer's driver, and over what it is measured.
PEERS = {
    "Redis": ("redis_side.py", ("shm", "tcp")),
    "Mooncake store": ("mooncake_side.py", ("tcp",)),
    "NIXL": ("nixl_side.py", ("shm", "tcp")),
}
OURS = {"put": "put", "get_hot": "get"}
LIMIT_S = 300


def rates(driver: str, transport: str, size: int, runs: int) -> dict[str, list[float]]:
    """GB/s of puts and gets. RuntimeError says why there are none."""
    if not PYTHON.exists():
        raise RuntimeError(f"there is no {PYTHON.parents[1]}; see why above")
    command = [str(PYTHON), str(FOLDER / driver), "--transport", transport]
    command += ["--bytes", str(size), "--runs", str(runs)]
    environment = os.environ | {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
    # In a session of its own, so that what the driver started ends with it.
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


def beside(row: Row, peer: str, got: dict[str, list[float]] | str) -> Row:
    """Our rounds with the peer's as what they stand beside, or why there are none."""
    move = OURS[row["bench"]]
    params = {name: row["params"][name] for name in ("transport", "bytes")}
    made: Row = {"bench": f"{move}_beside_peer", "params": {"peer": peer, **params}}
    made |= {"unit": "GB/s", "ceiling_name": f"{peer}, {move}"}
    if isinstance(got, str):
        return made | {"why_not": got}
    return made | {"values": row["values"], "ceilings": got[move], "paired": False}


def measure(rows: list[Row]) -> list[Row]:
    """A row for each of our puts and gets by one client in a pass, and each peer."""
    ours = [
        row
        for row in rows
        if row["bench"] in OURS and row["params"]["clients"] == 1 and "values" in row
    ]
    cases = dict.fromkeys((row["params"]["transport"], row["params"]["bytes"]) for row in ours)
    made = []
    for peer, (driver, transports) in PEERS.items():
        for transport, size in cases:
            if transport not in transports:
                continue
            print(f"{peer} over {transport}, {size >> 20} MiB", file=sys.stderr)
            of_case = [
                row
                for row in ours
                if (row["params"]["transport"], row["params"]["bytes"]) == (transport, size)
            ]
            got: dict[str, list[float]] | str
            try:
                got = rates(driver, transport, size, len(of_case[0]["values"]))
            except RuntimeError as why:
                got = str(why)
            made += [beside(row, peer, got) for row in of_case]
    return made
