"""What is promised of ./dev bench's rows, and whether it was kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass
class Mark:
    """A bound on a row: its text, the number that DESIGN's rows carry, and whether it holds."""

    text: str
    bound: float
    holds: Callable[[Row], bool]


def at_least(share: float) -> Mark:
    """Of the ceiling."""
    return Mark(f"share >= {share:.0%}", share, lambda row: row["share"] >= share)


def at_most(value: float, text: str) -> Mark:
    """Whatever the ceiling is."""
    return Mark(f"<= {text}", value, lambda row: row["value"] <= value)


def times(most: float) -> Mark:
    """As much of the ceiling's time, in the median round."""
    return Mark(f"<= {most:g}x the ceiling", most, lambda row: row["share"] >= 1 / most)


# Of K and V: from here on the rate is what counts.
LARGE_BYTES = 64 << 20

# Two layers' time at the whole get's rate, and a little.
FIRST_LAYER_S = 200e-6
FIRST_LAYER = Mark(
    "<= 2 layers + 200 us",
    FIRST_LAYER_S,
    lambda row: row["value"] <= 2 * row["ceiling"] + FIRST_LAYER_S,
)


def mark_of(row: Row) -> Mark | None:
    """What is promised of a row, if anything is."""
    params = row["params"]
    # Below, requests are what is measured, and lookup_get has the mark.
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
            return times(1.3)
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
        case "put_beside_peer" | "get_beside_peer" if large:
            return Mark("faster than it", 1.0, lambda row: row["share"] > 1)
        case "store_put_wal" | "store_put_fsync" | "store_read_cold":
            return at_least(0.75)
    return None


def judge(rows: list[Row]) -> None:
    """Adds to every row the bound that it must keep (or null), the bound in words, and whether it
    is kept (null where nothing is promised or nothing was measured)."""
    for row in rows:
        mark = mark_of(row)
        row["mark"] = mark.bound if mark else None
        row["mark_text"] = mark.text if mark else None
        row["met"] = mark.holds(row) if mark and "value" in row else None


def verdict(row: Row) -> str:
    """For a table."""
    if "value" not in row:
        told = f" ({row['mark_text']})" if row["mark"] is not None else ""
        return f"not measured: {row['why_not']}{told}"
    told = []
    if row["met"] is not None:
        told.append(f"{'met' if row['met'] else 'NOT MET'}: {row['mark_text']}")
    # What it was measured in is less than what was asked for.
    told += [f"not measured in {reason}" for reason in row.get("failed", [])]
    return "; ".join(told)


TITLES = {
    "put": "Put and hot get",
    "put_ingest": "Put and hot get",
    "put_foreign": "Put and hot get",
    "get_hot": "Put and hot get",
    "put_compressed": "Put with compression",
    "lookup_get": "Small requests: lookup and get of 64 KiB",
    "first_layer": "Time to the first layer",
    "server_cpu": "CPU of the server",
    "get_cold": "Cold get, and the second one",
    "get_again": "Cold get, and the second one",
    "commit": "Commits by durability",
    "commit_crowd": "Commits by durability",
    "put_sustained": "Commits by durability",
    "lookup": "Lookup of a path of 32K tokens, alone and while transfers run",
    "restart": "Restart to serving, after SIGKILL",
    "put_beside_peer": "Beside peers: the same bytes over the same transport",
    "get_beside_peer": "Beside peers: the same bytes over the same transport",
    "ucx_messages": "Small requests: lookup and get of 64 KiB",
    "ucx_perftest": "For reference: ucx_perftest, one buffer, so hot in the caches",
}


def title(bench: str) -> str:
    """Under which heading of the page a row stands."""
    if bench.startswith("store_"):
        return "The store alone"
    return TITLES.get(bench, bench)
