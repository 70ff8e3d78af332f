"""Stores the KV cache of a prompt, and reads it back at a smaller budget.

quickstart.py cache-dir         the whole service inside this process
quickstart.py 127.0.0.1:7470    a running precisd
"""

import os
import sys

import numpy as np

import precis


def run(where: str) -> None:
    """Puts and gets at `where`."""
    # Credentials, for a service with tenants.
    tenant, token = os.getenv("PRECIS_TENANT", ""), os.getenv("PRECIS_TOKEN", "")
    remote = ":" in where
    cache = precis.connect(where, tenant=tenant, token=token) if remote else precis.open(where)
    print(f"connected to {where}" if remote else f"opened {where} in this process")

    model = cache.register_model(
        precis.ModelSpec(
            name="example/two-layers",
            num_layers=2,
            num_q_heads=8,
            num_kv_heads=2,
            head_dim=64,
            dtype="f32",
        )
    )
    tokens = list(range(1000))
    random = np.random.default_rng(seed=1)

    # Put: layers in any order; nothing is visible before commit.
    put = cache.begin_put(model, tokens, recipe="global_kvdiff", keep=0.3)
    for layer in range(2):
        keys, values = random.standard_normal((2, 2, 1000, 64), dtype=np.float32)
        put.layer(layer, keys, values)
    segment = put.commit(durability="wal")
    # The same put twice is one segment: the second put pushes nothing.
    done = "was stored before:" if put.already_stored else "stored"
    print(f"{done} {segment.bytes} of {segment.original_bytes} bytes")

    # Get: the longest stored prefix of these tokens, at two thirds of what is stored.
    match = cache.lookup(model, tokens)
    prefix = cache.get(match, keep=0.2)
    for i, layer in enumerate(prefix.layers):
        for j, head in enumerate(layer.heads):
            print(f"layer {i} head {j}: {len(head.positions)} of {match.matched_tokens} tokens")


if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
try:
    run(sys.argv[1])
except precis.Error as error:
    print(f"quickstart: {error.code}: {error}", file=sys.stderr)
    if isinstance(error, precis.Unavailable) and ":" in sys.argv[1]:
        print(f"to start one: precisd --data cache-dir --listen {sys.argv[1]}", file=sys.stderr)
    if isinstance(error, precis.PermissionDenied) and ":" in sys.argv[1]:
        print("set PRECIS_TENANT and PRECIS_TOKEN to a tenant of that service", file=sys.stderr)
    sys.exit(1)
