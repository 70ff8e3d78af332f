#!/usr/bin/env python3
"""Makes block_digest_vectors.json from the rules of schema/README.md, using only hashlib.

It shares no code with the C++ implementation, so the test in tests/unit/schema can compare the two.
Run it in this folder: ./make_block_digest_vectors.py > block_digest_vectors.json
"""

import hashlib
import json
import struct
import sys

DTYPES = {"bf16": 1, "f16": 2, "f32": 3, "f8_e4m3": 4}
BUDGETS = {"all": 0, "ratio": 1, "entries": 2, "bytes": 3}


def u8(x):
    return struct.pack("<B", x)


def u32(x):
    return struct.pack("<I", x)


def u64(x):
    return struct.pack("<Q", x)


def text(s):
    data = s.encode()
    return u32(len(data)) + data


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def fingerprint(m):
    return sha256(
        text("precis.model.v1"),
        text(m["name"]),
        text(m["revision"]),
        u32(m["num_layers"]),
        u32(m["num_q_heads"]),
        u32(m["num_kv_heads"]),
        u32(m["head_dim"]),
        u8(DTYPES[m["dtype"]]),
        struct.pack("<d", m["rope_theta"]),
        text(m["rope_scaling"]),
        u32(m["block_tokens"]),
        *map(u32, m["windows"]),
    )


def root(r):
    return sha256(
        text("precis.root.v1"),
        text(r["tenant"]),
        text(r["salt"]),
        bytes.fromhex(r["fingerprint"]),
        text(r["adapter"]),
    )


def in_shard(r):
    return sha256(text("precis.in_shard.v1"), bytes.fromhex(r["root"]), u32(r["shard"]))


def blocks(root_digest, tokens, block_tokens):
    digests, previous = [], root_digest
    for k in range(len(tokens) // block_tokens):
        block = tokens[k * block_tokens : (k + 1) * block_tokens]
        previous = sha256(previous, *map(u32, block))
        digests.append(previous)
    return digests


def tip(root_digest, tokens, block_tokens):
    digests = blocks(root_digest, tokens, block_tokens)
    tail = tokens[len(digests) * block_tokens :]
    last = digests[-1] if digests else root_digest
    return sha256(text("precis.tip.v1"), last, *map(u32, tail))


def segment(s):
    return sha256(
        text("precis.segment.v1"),
        bytes.fromhex(s["tip_at_begin"]),
        u32(s["begin"]),
        bytes.fromhex(s["tip_at_end"]),
        u32(s["end"]),
        bytes.fromhex(s["parent"]),
        u8(s["parent_read_kind"] is not None),
        u8(BUDGETS[s["parent_read_kind"] or "all"]),
        u64(s["parent_read_value"]),
        text(s["recipe"]),
        u8(BUDGETS[s["budget_kind"]]),
        u64(s["budget_value"]),
    )[:16]


def part(p):
    segment_id = bytes.fromhex(p["segment"])
    return sha256(text("precis.part.v1"), segment_id, u32(p["end"]))[:16]


def with_answer(case, name, digest):
    return {**case, name: digest.hex()}


def path_case(root_digest, tokens, block_tokens):
    return {
        "root": root_digest.hex(),
        "block_tokens": block_tokens,
        "tokens": tokens,
        "blocks": [d.hex() for d in blocks(root_digest, tokens, block_tokens)],
        "tip": tip(root_digest, tokens, block_tokens).hex(),
    }


def main():
    small = {
        "name": "example/small",
        "revision": "",
        "num_layers": 2,
        "num_q_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "dtype": "f32",
        "rope_theta": 10000.0,
        "rope_scaling": "",
        "block_tokens": 4,
        "windows": [],
    }
    large = {
        "name": "example/größer",
        "revision": "abc123",
        "num_layers": 32,
        "num_q_heads": 32,
        "num_kv_heads": 8,
        "head_dim": 128,
        "dtype": "bf16",
        "rope_theta": 500000.0,
        "rope_scaling": '{"factor":8.0,"rope_type":"llama3"}',
        "block_tokens": 64,
        "windows": [],
    }
    changes = [{"dtype": "f16"}, {"dtype": "f8_e4m3"}, {"windows": [0, 512]}]
    models = [small, *({**small, **change} for change in changes), large]

    roots = [
        {
            "tenant": tenant,
            "salt": salt,
            "fingerprint": fingerprint(model).hex(),
            "adapter": adapter,
        }
        for model, tenant, salt, adapter in [
            (small, "default", "", ""),
            (small, "defaul", "t", ""),
            (large, "acme", "pepper", "lora-7"),
        ]
    ]

    first = root(roots[0])
    spread = [(i * 2654435761) % 2**32 for i in range(130)]  # ids over the whole range
    paths = [
        path_case(first, [], 4),
        path_case(first, [1, 2, 3], 4),
        path_case(first, [1, 2, 3, 4], 4),
        path_case(first, [1, 2, 3, 4, 5, 0, 2**32 - 1, 7, 8], 4),
        path_case(root(roots[2]), spread, 64),
        path_case(root(roots[2]), spread[:5], 1),
    ]

    keydiff = (
        '{"count_rule":"exact_floor","heads":"uniform","layers":"uniform","min_entries":0,'
        '"recent":0,"scorer":"keydiff","selector":"topk","sinks":0,"version":1}'
    )
    at_root = {
        "tip_at_begin": paths[0]["tip"],
        "begin": 0,
        "tip_at_end": paths[3]["tip"],
        "end": 9,
        "parent": "00" * 16,
        "parent_read_kind": None,
        "parent_read_value": 0,
        "recipe": keydiff,
        "budget_kind": "ratio",
        "budget_value": 300000,
    }
    child = {
        **at_root,
        "begin": 4,
        "tip_at_begin": paths[2]["tip"],
        "parent": "0123456789abcdef" * 2,
        "parent_read_kind": "ratio",
        "parent_read_value": 200000,
        "budget_kind": "bytes",
        "budget_value": 2**40 + 1,
    }

    json.dump(
        {
            "about": "By the rules of schema/README.md; made by make_block_digest_vectors.py.",
            "fingerprints": [with_answer(m, "fingerprint", fingerprint(m)) for m in models],
            "roots": [with_answer(r, "root", root(r)) for r in roots],
            "in_shards": [
                with_answer(r, "in_shard", in_shard(r))
                for r in ({"root": root(roots[0]).hex(), "shard": shard} for shard in (0, 16383))
            ],
            "paths": paths,
            "segments": [with_answer(s, "segment", segment(s)) for s in (at_root, child)],
            "parts": [
                with_answer(p, "part", part(p))
                for p in (
                    {"segment": "0123456789abcdef" * 2, "end": 4},
                    {"segment": segment(child).hex(), "end": 2**24 - 64},
                )
            ],
        },
        sys.stdout,
        indent=1,
        ensure_ascii=True,
    )
    print()


if __name__ == "__main__":
    main()
