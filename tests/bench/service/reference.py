"""Measures ucx_perftest: UCX's own rates between two processes of this machine, and the time of its
messages.

The figures are a reference and not a ceiling: ucx_perftest moves one buffer repeatedly, and that
buffer stays in the caches.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]

# For each transport: UCX's names for it, and UCX's fastest operation on it.
OPERATIONS = {"shm": ("posix,cma", "ucp_get"), "tcp": ("tcp", "tag_bw")}
BYTES_PER_RUN = 512 << 20
LIMIT_S = 60

# The messages of a lookup and a get of 64 KiB: three small ones, and the one with the bytes.
MESSAGE_BYTES, MESSAGES = 512, 3
ANSWER_BYTES = 64 << 10
MESSAGE_RUNS = 10_000
# Cores of the client; the service runs on core 0.
PLACEMENTS = {"one core": 0, "two cores": 1}


def free_port() -> int:
    """A port on which nothing listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def perftest(tls: str, arguments: list[str], core: int | None = None) -> list[float]:
    """The numbers in the last line of one run. RuntimeError, with the reason, if there are none."""
    if shutil.which("ucx_perftest") is None:
        raise RuntimeError("there is no ucx_perftest; apt-get install ucx-utils")
    common = ["ucx_perftest", "-p", str(free_port())]
    # The flag that selects how to wait must be given to both sides.
    common += [flag for flag in arguments if flag.startswith("-E")]
    environment = {"UCX_TLS": tls, "PATH": "/usr/bin:/bin", "UCX_LOG_LEVEL": "error"}

    def on(number: int) -> list[str]:
        return common if core is None else ["taskset", "-c", str(number), *common]

    with subprocess.Popen(
        on(0), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            time.sleep(0.5)  # The server prints nothing when it starts to listen.
            done = subprocess.run(
                [*on(core or 0), "127.0.0.1", *arguments, "-f", "-v"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"ucx_perftest took longer than {LIMIT_S} s") from None
        finally:
            server.kill()
    for line in reversed(done.stdout.splitlines()):
        fields = line.split(",")
        if done.returncode == 0 and len(fields) >= 6:
            return [float(field) for field in fields]
    raise RuntimeError(f"ucx_perftest failed: {(done.stderr or done.stdout).strip()[-200:]}")


def rate(transport: str, size: int) -> float:
    """GB/s of moving one buffer of `size` bytes."""
    tls, operation = OPERATIONS[transport]
    count = str(max(BYTES_PER_RUN // size, 4))
    told = perftest(tls, ["-t", operation, "-s", str(size), "-n", count, "-w", "2"])
    return told[5] * 2**20 / 1e9  # MB/s, overall


def messages_seconds(core: int) -> float:
    """Seconds of the messages of a lookup and a get, one after another; waiting sides sleep."""

    def one_way(size: int) -> float:
        arguments = ["-Esleep", "-t", "ucp_am_lat", "-s", str(size)]
        told = perftest("tcp", [*arguments, "-n", str(MESSAGE_RUNS), "-w", "200"], core)
        return told[1] * 1e-6  # us, the median half of a round trip

    return MESSAGES * one_way(MESSAGE_BYTES) + one_way(ANSWER_BYTES)


def measured(row: Row, run: Callable[[], float]) -> Row:
    """The row with its value, or with the reason for none."""
    try:
        value = run()
        return row | {"value": value, "min": value, "max": value, "runs": 1}
    except RuntimeError as why:
        return row | {"why_not": str(why)}


def measure(rows: list[Row]) -> list[Row]:
    """One row for every transport and size with measured gets of one client, and one for each
    placement of lookup_get."""
    made: list[Row] = []
    for row in rows:
        params = row["params"]
        if row["bench"] == "get_hot" and params.get("clients") == 1 and "value" in row:
            transport, size = params["transport"], params["bytes"]
            print(f"ucx_perftest of {size >> 20} MiB over {transport}", file=sys.stderr)
            shown = {"transport": transport, "bytes": size}
            reference: Row = {"bench": "ucx_perftest", "unit": "GB/s", "params": shown}
            made.append(measured(reference, functools.partial(rate, transport, size)))
    if any(row["bench"] == "lookup_get" and "value" in row for row in rows):
        for placement, core in PLACEMENTS.items():
            if core >= (os.cpu_count() or 1):
                continue
            print(f"ucx_perftest of small messages on {placement}", file=sys.stderr)
            shown = {"transport": "tcp", "placement": placement}
            reference = {"bench": "ucx_messages", "unit": "s", "params": shown}
            made.append(measured(reference, functools.partial(messages_seconds, core)))
    return made
