"""The promised bounds (marks) of ./dev bench's rows, and whether the rows keep them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass
class Mark:
    """A bound on a row: its text, its number, and whether it holds."""

    text: str
    bound: float
    holds: Callable[[Row], bool]


def at_least(share: float) -> Mark:
    """At least a share of the ceiling."""
    return Mark(f"share >= {share:.0%}", share, lambda row: row["share"] >= share)


def at_most(value: float, text: str) -> Mark:
    """At most a value, independent of the ceiling."""
    return Mark(f"<= {text}", value, lambda row: row["value"] <= value)


def times(most: float) -> Mark:
    """At most a multiple of the ceiling's time, in the median round."""
    return Mark(f"<= {most:g}x the ceiling", most, lambda row: row["share"] >= 1 / most)


# Bytes of K and V from which the rate is the promise.
LARGE_BYTES = 64 << 20

# Two layers' time and 200 us. The row's ceiling is one layer's time at the faster rate of the whole
# get and of the transport's ceiling, so that a slow get does not allow more time.
FIRST_LAYER_S = 200e-6
FIRST_LAYER = Mark(
    "<= 2 layers + 200 us",
    FIRST_LAYER_S,
    lambda row: row["value"] <= 2 * row["ceiling"] + FIRST_LAYER_S,
)


def mark_of(row: Row) -> Mark | None:
    """The promised bound of a row, or None."""
    params = row["params"]
    # Smaller transfers measure mostly the requests; lookup_get has the mark for these.
    large = params.get("bytes", LARGE_BYTES) >= LARGE_BYTES
    alone = params.get("clients", 1) == 1 and large
    many_records = params.get("head_records", 0) >= 1_000_000
    match row["bench"]:
        case "get_hot" | "get_again" if alone:
            return at_least(0.90)
        case "put" if alone:
            return at_least(0.85)
        case "put_compressed":
            return at_least(0.85)
        case "lookup_get":
            return times(2)
        case "first_layer":
            return FIRST_LAYER
        case "server_cpu":
            return times(1.15)
        case "get_cold" if alone:
            return at_least(0.75)
        case "get_chain" | "get_chain_cold" if large:
            return times(1.3)
        case "get_coded" if large and params["transport"] == "tcp" and params["encoding"] == "int8":
            return at_least(1.6)
        case "get_beside_admin":
            return times(1.05)
        case "put_sustained":
            return at_least(0.75)
        case "lookup" if params.get("quantile") == "p99" and many_records:
            return at_most(1e-3, "1 ms") if params.get("transfers") == "running" else None
        case "restart" if many_records:
            return at_most(2.0, "2 s")
        case bench if bench.endswith("_beside_peer") and large:
            return Mark("faster than it", 1.0, lambda row: row["share"] > 1)
        case "store_put_wal" | "store_put_fsync" | "store_read_cold":
            return at_least(0.75)
    return None


def judge(rows: list[Row]) -> None:
    """Adds to every row the bound that it must keep (or null), the bound in words, and whether the
    row keeps it (null if nothing is promised or nothing was measured)."""
    for row in rows:
        mark = mark_of(row)
        row["mark"] = mark.bound if mark else None
        row["mark_text"] = mark.text if mark else None
        row["met"] = mark.holds(row) if mark and "value" in row else None


def ranges_overlap(row: Row) -> bool:
    """Whether rounds that were not measured in pairs leave open which of the two is faster."""
    apart = row["min"] > row["ceiling_max"] or row["max"] < row["ceiling_min"]
    return not row.get("paired", True) and not apart


def verdict(row: Row) -> str:
    """The text of the table's last column."""
    if "value" not in row:
        told = f" ({row['mark_text']})" if row["mark"] is not None else ""
        return f"not measured: {row['why_not']}{told}"
    told = []
    if row["met"] is not None:
        overlap = ", ranges overlap" if ranges_overlap(row) else ""
        told.append(f"{'met' if row['met'] else 'NOT MET'}{overlap}: {row['mark_text']}")
    # Some of the requested passes have no rounds of this figure.
    told += [f"not measured in {reason}" for reason in row.get("failed", [])]
    return "; ".join(told)


PUT_GET = "Put and hot get"
COMPRESSED = "Put with compression"
SMALL = "Small requests: lookup and get of 64 KiB"
FIRST = "Time to the first layer"
COLD = "Cold get, and the get after it"
CHAIN = "Get of a conversation of 50 turns, compared with one segment of the same bytes"
CODED = "Get of coded rows, compared with the same entries in bf16"
COMMITS = "Commits by durability"
LOOKUP = "Lookup of a path of 32K tokens, alone and while transfers run"
BESIDE = "Hot get beside 200 requests per second to the admin port"
RESTART = "Time from a restart after SIGKILL until the service answers"
PEERS = "Compared with other stores: the same bytes over the same transport"

TITLES = {
    "put": PUT_GET,
    "put_ingest": PUT_GET,
    "put_foreign": PUT_GET,
    "get_hot": PUT_GET,
    "get_by_path": PUT_GET,
    "put_bare": PUT_GET,
    "get_bare": PUT_GET,
    "put_compressed": COMPRESSED,
    "lookup_get": SMALL,
    "ucx_messages": SMALL,
    "first_layer": FIRST,
    "server_cpu": "CPU of the server",
    "get_cold": COLD,
    "get_again": COLD,
    "get_chain": CHAIN,
    "get_chain_cold": CHAIN,
    "get_coded": CODED,
    "commit": COMMITS,
    "commit_crowd": COMMITS,
    "put_sustained": COMMITS,
    "lookup": LOOKUP,
    "get_beside_admin": BESIDE,
    "get_and_admin": BESIDE,
    "restart": RESTART,
    "ucx_perftest": "For reference: ucx_perftest with one buffer, which stays in the caches",
}

# Notes below the headings: facts that a reader needs to compare the figures.
NOTES = {
    PUT_GET: "A put ends with its commit at `memory`: stored as its recipe says and there for "
    "every get, but not yet on the disk. The puts of one client in a round fit into the memory "
    "that precisd may hold ahead of the disk, a quarter of its memory; they are written after the "
    "clock has stopped. From 64 MiB on, the puts of eight clients do not fit and wait for the "
    "disk. `put_sustained` below is the rate of puts at `wal` and `fsync`. `put` pushes from "
    "memory that the client allocated, which a service on the same host reads in place; "
    "`put_foreign` pushes from other memory. `get_hot` begins with a match, `get_by_path` with the "
    "lookup. `put_bare` and `get_bare` do the work of such a put and get without a service: every "
    "stage of compression from memory to memory, or two threads that copy and check as many "
    "bytes; over TCP, a socket at the same time as the stages, or as one thread that checks. If "
    "these are below a mark too, no program that does their work can meet it on this machine.",
    COMPRESSED: "Commits are at `memory`, as above. Puts push from memory that the client "
    "allocated.",
    FIRST: "The mark is twice the time of one layer, plus 200 us. The time of one layer is taken "
    "at the rate of the whole get, or at that of the transport's ceiling if that is faster, so "
    "that a slow get has no easier mark.",
    COLD: "The disk's ceiling is a plain file that is read without the page cache, at most 4 MiB "
    "per read, with one read after the other or with several at a time: the faster of the two in "
    "each round.",
    LOOKUP: "A known path is stored and was looked up before, so the service has its hashes. A new "
    "path is not stored, shares its beginning with no other path, and is hashed whole.",
    BESIDE: "A quarter of the requests are for /metrics, the others for the status and for lists "
    "of 64 segments and of models. The client that makes them runs on the same machine, so its own "
    "work is part of the figure. Slices with and without the requests alternate.",
    RESTART: "Every round starts on a copy of the store that was made just before, so that its "
    "pages are in the page cache: the figure does not include the disk's time to read them.",
    PEERS: "All move eight values per payload. Each pass first takes our rounds, then those of "
    "each peer. If the ranges of the rounds overlap, the mark says so: it is decided by the "
    "medians, and another run may decide otherwise. `put` pushes from memory that our client "
    "allocated and that a service on the same host reads in place; `put_foreign` pushes from "
    "memory that the service does not know before. The memory of NIXL and Mooncake was registered "
    "before; Redis reads any memory. `get_by_path` includes our lookup, because Redis and Mooncake "
    "look up names; NIXL knows no names, so `get_hot` is compared with it. Redis is asked for 1, 2 "
    "or 8 values at a time, and told to delete values before they are put again or not, whichever "
    "was fastest before the rounds. Peers keep their bytes only in memory.",
}


def title(bench: str) -> str:
    """The heading of the page under which a row appears."""
    if bench.startswith("store_"):
        return "The store alone"
    if bench.endswith("_beside_peer"):
        return PEERS
    return TITLES.get(bench, bench)
