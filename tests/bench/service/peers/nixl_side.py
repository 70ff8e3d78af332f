"""NIXL between two processes: this one writes to the other's registered memory and reads from it.

NIXL is no store: it has no names, no allocation and no checks. Its progress thread is off, because
it makes NIXL slower; the other process makes progress by polling for notifications without pause.
"""

from __future__ import annotations

import base64
import ctypes
import os
import subprocess
import sys

from common import LAYERS, Work, arguments, measure

# Within a host the kernel copies the bytes (cma), and TCP carries the rest, as in our transport.
TRANSPORTS = {"shm": "cma,tcp", "tcp": "tcp"}


def agent(name: str) -> object:
    """An agent over UCX. Set the environment that chooses UCX's transports before this call."""
    from nixl._api import nixl_agent, nixl_agent_config

    return nixl_agent(name, nixl_agent_config(enable_prog_thread=False))


def address_of(pool: object) -> int:
    """The address of the pool's first byte."""
    return ctypes.addressof(ctypes.c_char.from_buffer(pool))


def hold(work: Work) -> None:
    """Runs the other process until it is killed."""
    pool = work.target()
    size = work.payloads * work.size
    holder = agent("holder")
    holder.register_memory([(address_of(pool), size, 0, "")], "DRAM")
    print(base64.b64encode(holder.get_agent_metadata()).decode(), address_of(pool), flush=True)
    while os.getppid() != 1:
        for _ in range(1000):
            holder.get_new_notifs()


def main() -> None:
    """Runs the holder and the client."""
    holding = "--hold" in sys.argv
    if holding:
        sys.argv.remove("--hold")
    work = arguments()
    os.environ["UCX_TLS"] = TRANSPORTS[work.transport]
    if holding:
        return hold(work)
    command = [sys.executable, __file__, "--hold", *sys.argv[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            words: list[str] = []
            while len(words) != 2 or not words[1].isdigit():  # Other output may come first.
                line = other.stdout.readline()
                if not line:
                    raise SystemExit("NIXL's other process ended")
                words = line.split()
            there = int(words[1])
            source, target = work.source(), work.target()
            client = agent("client")
            size = work.payloads * work.size
            pools = [(address_of(pool), size, 0, "") for pool in (source, target)]
            client.register_memory(pools, "DRAM")
            name = client.add_remote_agent(base64.b64decode(words[0]))

            def move(kind: str, pool: object, i: int) -> None:
                places = [i * work.size + n * work.value_size for n in range(LAYERS)]
                ours = [(address_of(pool) + at, work.value_size, 0) for at in places]
                theirs = [(there + at, work.value_size, 0) for at in places]
                request = client.initialize_xfer(
                    kind,
                    client.get_xfer_descs(ours, "DRAM"),
                    client.get_xfer_descs(theirs, "DRAM"),
                    name,
                )
                state = client.transfer(request)
                while state == "PROC":
                    state = client.check_xfer_state(request)
                if state != "DONE":
                    raise SystemExit(f"NIXL's {kind} ended with {state}")
                client.release_xfer_handle(request)

            measure(
                work,
                source,
                target,
                lambda i: move("WRITE", source, i),
                lambda i: move("READ", target, i),
            )
        finally:
            other.kill()
    # NIXL 1.5.1 crashes if an agent is destroyed while the interpreter exits.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
