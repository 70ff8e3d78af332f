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
COLD = "Cold get, and the second one"
COMMITS = "Commits by durability"
LOOKUP = "Lookup of a path of 32K tokens, alone and while transfers run"
RESTART = "Restart to serving, after SIGKILL"
PEERS = "Beside peers: the same bytes over the same transport"

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
    "commit": COMMITS,
    "commit_crowd": COMMITS,
    "put_sustained": COMMITS,
    "lookup": LOOKUP,
    "restart": RESTART,
    "ucx_perftest": "For reference: ucx_perftest, one buffer, so hot in the caches",
}

# Notes below the headings: facts that a reader needs to compare the figures.
NOTES = {
    PUT_GET: "A put ends with its commit at `memory`: stored as its recipe says and there for "
    "every get, but not yet on the disk. What one client puts in a round fits what precisd may "
    "hold ahead of the disk, a quarter of its memory, and is written after the clock has stopped. "
    "What eight clients put does not fit from 64 MiB on: these puts wait for the disk. "
    "`put_sustained` below is what it takes of puts at `wal` and `fsync`. `put` is out of memory "
    "that the client allocated, which a service on the same host reads where it is; `put_foreign` "
    "is out of other memory. `get_hot` begins with what a lookup gave, `get_by_path` with the "
    "lookup. `put_bare` and `get_bare` are what the cores do of such a put and get without a "
    "service: every stage of compression from memory to memory, or two threads that copy and check "
    "as many bytes; over tcp a socket beside the stages, or beside one thread that checks. Where "
    "these stay below a mark, nothing that does their work keeps it here.",
    COMPRESSED: "Commits are at `memory`, as above, and out of memory that the client allocated.",
    FIRST: "The mark is twice what a layer takes, and 200 us; a layer at the rate of the whole "
    "get, or at that of the transport's ceiling where this is faster, so that a slow get allows no "
    "more time.",
    COLD: "The disk's ceiling is a plain file read around the machine's cache, 4 MiB a read at "
    "most, by one read after the other or by several at a time: of each round the faster.",
    LOOKUP: "A known path is stored and was asked for before, so the service has its hashes; a new "
    "one is not stored, begins like no other, and is hashed whole.",
    RESTART: "Every round starts on a copy of the store that was made a moment before, so that its "
    "pages are in the machine's cache: what a disk takes to read them is not in the figure.",
    PEERS: "All move eight values a payload; each pass takes our rounds first, then each peer's. "
    "Where the two ranges of rounds overlap the mark says so: it is decided by the medians, and "
    "another run may decide otherwise. `put` is out of memory that our client allocated and a "
    "service on the same host reads in place; `put_foreign` is out of memory that nobody told it "
    "of. NIXL's memory and Mooncake's were registered before, Redis reads any. `get_by_path` "
    "includes our lookup, as Redis and Mooncake look up names; NIXL knows none, so beside it "
    "stands `get_hot`. Redis is asked for 1, 2 or 8 values at a time, and told to delete values "
    "before they are put again or not, as it was the fastest with before the rounds. Peers keep "
    "their bytes in memory alone.",
}


def title(bench: str) -> str:
    """The heading of the page under which a row appears."""
    if bench.startswith("store_"):
        return "The store alone"
    if bench.endswith("_beside_peer"):
        return PEERS
    return TITLES.get(bench, bench)
