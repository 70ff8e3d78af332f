"""Mooncake's store over TCP: its master, a process that holds the memory, and this process, a
client that holds none and moves bytes from and to memory that it has registered."""

from __future__ import annotations

import ctypes
import socket
import subprocess
import sys
import time
from pathlib import Path

from common import LAYERS, arguments, check, measure
from mooncake.store import MooncakeDistributedStore

LOCAL_BUFFER = 512 << 20


def free_port() -> int:
    """A port on which nothing listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def join(master: str, holds: int, local_buffer: int) -> MooncakeDistributedStore:
    """Joins the store with this process; returns the store."""
    store = MooncakeDistributedStore()
    for _ in range(50):
        status = store.setup("127.0.0.1", "P2PHANDSHAKE", holds, local_buffer, "tcp", "", master)
        if status == 0:
            return store
        time.sleep(0.2)
    raise SystemExit(f"joining Mooncake's store failed with {status}")


def hold(master: str, size: int) -> None:
    """Holds the memory until the process's standard input ends."""
    store = join(master, size, 16 << 20)
    print("ready", flush=True)
    sys.stdin.read()
    store.close()


def main() -> None:
    """Runs the master, the holder and the client."""
    if sys.argv[1] == "--hold":
        return hold(sys.argv[2], int(sys.argv[3]))
    work = arguments()
    if work.transport != "tcp":
        raise SystemExit("Mooncake's store is measured over TCP")
    port = free_port()
    master = f"127.0.0.1:{port}"
    size = 2 * work.payloads * work.size + (256 << 20)
    master_program = str(Path(sys.executable).parent / "mooncake_master")
    command = [master_program, f"--rpc_port={port}", f"--metrics_port={free_port()}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as serving:
        holder = None
        try:
            holder = subprocess.Popen(
                [sys.executable, __file__, "--hold", master, str(size)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert holder.stdout is not None
            while (line := holder.stdout.readline()) not in (b"ready\n", b""):
                pass
            if not line:
                raise SystemExit("the process that holds Mooncake's memory ended")
            store = join(master, 0, LOCAL_BUFFER)
            source, target = work.source(), work.target()
            at = [ctypes.addressof(ctypes.c_char.from_buffer(pool)) for pool in (source, target)]
            for address in at:
                check(0, store.register_buffer(address, work.payloads * work.size), "register")

            def pieces(pool: int, i: int) -> tuple[list[str], list[int], list[int]]:
                begin = at[pool] + i * work.size
                places = [begin + n * work.value_size for n in range(LAYERS)]
                return [f"{i}.{n}" for n in range(LAYERS)], places, [work.value_size] * LAYERS

            def put(i: int) -> None:
                for status in store.batch_put_from(*pieces(0, i)):
                    check(0, status, "put")

            def forget(i: int) -> None:
                for key in pieces(0, i)[0]:
                    check(0, store.remove(key, True), "remove")

            def get(i: int) -> None:
                for status in store.batch_get_into(*pieces(1, i)):
                    check(work.value_size, status, "get")

            measure(work, source, target, put, get, forget)
        finally:
            if holder is not None:
                holder.kill()
                holder.wait()
            serving.kill()


if __name__ == "__main__":
    main()
