"""ucx_perftest beside the rows: what UCX itself moves between two processes of this machine.

For reference and no ceiling of ours: it moves one buffer again and again, which stays in the
caches.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from typing import Any

Row = dict[str, Any]

# Of each transport UCX's own name, and the operation that is best there.
OPERATIONS = {"shm": ("posix,cma", "ucp_get"), "tcp": ("tcp", "tag_bw")}
BYTES_PER_RUN = 512 << 20
LIMIT_S = 60


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rate(transport: str, size: int) -> float:
    """GB/s of one buffer of that size. RuntimeError says why there is none."""
    tls, operation = OPERATIONS[transport]
    port = str(free_port())
    common = ["ucx_perftest", "-p", port]
    environment = {"UCX_TLS": tls, "PATH": "/usr/bin:/bin", "UCX_LOG_LEVEL": "error"}
    with subprocess.Popen(
        common, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            time.sleep(0.5)  # It says nothing when it listens.
            count = str(max(BYTES_PER_RUN // size, 4))
            client = [*common, "127.0.0.1", "-t", operation, "-s", str(size)]
            client += ["-n", count, "-w", "2", "-f", "-v"]
            done = subprocess.run(
                client,
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
            return float(fields[5]) * 2**20 / 1e9  # MB/s, overall
    raise RuntimeError(f"ucx_perftest failed: {(done.stderr or done.stdout).strip()[-200:]}")


def measure(rows: list[Row]) -> list[Row]:
    """A row for every transport and size that one client's gets were measured at."""
    wanted = [
        (row["params"]["transport"], row["params"]["bytes"])
        for row in rows
        if row["bench"] == "get_hot" and row["params"]["clients"] == 1 and "value" in row
    ]
    made: list[Row] = []
    for transport, size in wanted:
        print(f"ucx_perftest of {size >> 20} MiB over {transport}", file=sys.stderr)
        row: Row = {"bench": "ucx_perftest", "params": {"transport": transport, "bytes": size}}
        row |= {"unit": "GB/s"}
        try:
            if shutil.which("ucx_perftest") is None:
                raise RuntimeError("there is no ucx_perftest; apt-get install ucx-utils")
            value = rate(transport, size)
            row |= {"value": value, "min": value, "max": value, "runs": 1}
        except RuntimeError as why:
            row["why_not"] = str(why)
        made.append(row)
    return made
