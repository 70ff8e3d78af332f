"""The marks promised for ./dev bench kernels' rows: the time that their ceilings alone would take,
their time relative to another row, and whether a row meets its mark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# The marks, for this model at this length, by the row's name: the least share of the ceiling, the
# longest time relative to another row, or the least speed-up over kvpress.
MARKED_MODEL, MARKED_TOKENS = "llama-3.1-8b", 32768
SHARES = {
    "score knorm": 0.70,
    "score lagkv": 0.70,
    "norm v_l1": 0.70,
    "score keydiff": 0.60,
    "score snapkv": 0.50,
    "score ada_snapkv": 0.50,
    "score snapkv, lse pushed": 0.50,
    "score ada_snapkv, lse pushed": 0.50,
    "encode keydiff": 0.60,
    "norm l1_exact": 0.75,
    "score kvprobe": 0.60,
    "attend ragged": 0.70,
}
BESIDE = {
    "preset ada_snapkv": ("score ada_snapkv", 1.4),
    "preset criticalkv_ada(value_norm=l2_gram)": ("preset ada_snapkv", 2.0),
}
SELECT_SHARE = 0.10  # at every length
# Ceilings that the program measures: their field in Ceilings, and the amount that one run
# processes.
RATES = {
    "ceiling read": ("read", "read_bytes"),
    "ceiling read twice": ("read_twice", "reread_bytes"),
    "ceiling memcpy": ("memcpy", "copied_bytes"),
    "ceiling exps": ("exps", "exps"),
    "ceiling tiles": ("tiles", "flops"),
}
UNITS = {"exps": "G/s", "tiles": "GFLOP/s"}  # all others: GB/s
FASTER, FASTER_EXACT = 5.0, 1.2
FASTER_ATTEND = 3.0  # beside torch's attention over padded rows
# On a GPU: at most so many ms for all of a model's layers, by a row's name or else its kind.
GPU_LAYERS = 32
GPU_MS = {
    "score knorm": 1.5,
    "score lagkv": 1.5,
    "score keydiff": 1.5,
    "score snapkv": 2.0,
    "score ada_snapkv": 2.0,
    "preset ada_snapkv": 4.0,
    "preset criticalkv_ada": 50.0,
    "preset criticalkv_ada(value_norm=l2_gram)": 8.0,
    "select": 0.5,
    "encode": 1.0,
}
GPU_FASTER = 3.0


@dataclass
class Ceilings:
    """The rates of one model and length: bytes per second, powers per second, FLOP/s by kind of
    product."""

    read: float = 0.0
    read_twice: float = 0.0  # bytes that are read twice
    memcpy: float = 0.0
    exps: float = 0.0
    tiles: float = 0.0  # FLOP/s in cache
    order: float = 0.0  # seconds to order the kept entries
    products: dict[str, float] = field(default_factory=dict)


# The shape of a row's products, for rows whose products have a single shape.
SHAPES = {
    "norm l1_exact": "exact",
    "norm l2_gram": "gram",
    "score snapkv": "window",
    "score ada_snapkv": "window",
    "score snapkv, lse pushed": "window",
    "score ada_snapkv, lse pushed": "window",
}


def floor_seconds(row: dict[str, Any], ceilings: Ceilings) -> tuple[float, str]:
    """The time that the binding ceiling alone would take, and the name of that ceiling."""
    moved = row["read_bytes"] / ceilings.read
    copied = row["copied_bytes"] / ceilings.memcpy
    best = max(ceilings.products.values(), default=0.0)
    rate = ceilings.products.get(SHAPES.get(row["name"], ""), best)
    multiplied = row["flops"] / rate if rate else 0.0
    if multiplied > moved:
        return multiplied + copied, "products"
    return moved + copied, "memcpy" if copied > moved else "read"


def floor_in_all(row: dict[str, Any], ceilings: Ceilings) -> float | None:
    """The time of everything that the row does; None if a ceiling is not known."""
    rate = max([ceilings.tiles, *ceilings.products.values()])
    made = row["flops"] + row["remade_flops"]
    wanted = (
        (row["reread_bytes"], ceilings.read_twice),
        (row["exps"], ceilings.exps),
        (made, rate),
    )
    if any(amount and not ceiling for amount, ceiling in wanted):
        return None
    twice, powers, products = (amount / (ceiling or 1.0) for amount, ceiling in wanted)
    once = (row["read_bytes"] - row["reread_bytes"]) / ceilings.read
    return max(once + twice, products + powers) + row["copied_bytes"] / ceilings.memcpy


def finish(rows: list[dict[str, Any]]) -> None:
    """Adds to every row its share, its mark, and its comparisons."""
    ceilings: dict[tuple[str, int], Ceilings] = {}
    by_name = {}
    presses: dict[tuple[str, int, str], float] = {}
    for row in rows:
        key = (row["model"], row["tokens"])
        known = ceilings.setdefault(key, Ceilings())
        by_name[(*key, row["name"])] = row
        if row["name"] in RATES:
            field_name, amount = RATES[row["name"]]
            setattr(known, field_name, row[amount] / row["min"])
        elif row["name"] == "ceiling order":
            known.order = row["min"]
        elif "flop_rate" in row:
            known.products[row["name"].removeprefix("ceiling ")] = row["flop_rate"]
        elif row["kind"] == "kvpress":
            press = (*key, row["preset"])
            presses[press] = min(row["min"], presses.get(press, row["min"]))
    for row in rows:
        key = (row["model"], row["tokens"])
        if row["kind"] in ("ceiling", "kvpress"):
            continue
        on_gpu = row["backend"].startswith("cuda")
        if on_gpu:
            row["layers_ms"] = 1e3 * GPU_LAYERS * row["min"]
            row["layers_ms_mark"] = GPU_MS.get(row["name"], GPU_MS.get(row["kind"]))
        if row["kind"] == "select":
            beside, most = f"score {row['preset']}", SELECT_SHARE
            if order := ceilings[key].order:
                row["bound"], row["share"] = "order", order / row["min"]
        else:
            beside, most = BESIDE.get(row["name"], ("", 0.0))
            taken, row["bound"] = floor_seconds(row, ceilings[key])
            row["share"] = taken / row["min"]
            if (in_all := floor_in_all(row, ceilings[key])) is not None:
                row["share_in_all"] = in_all / row["min"]
            row["share_mark"] = None if on_gpu else SHARES.get(row["name"])
        if not on_gpu and (other := by_name.get((*key, beside))) is not None:
            row["beside"], row["beside_mark"] = beside, most
            row["times_beside"] = row["min"] / other["min"]
        press = presses.get((*key, row.get("preset", "")))
        if row["kind"] in ("preset", "attend") and press is not None:
            row["times_faster"] = press / row["min"]
            exact = row["preset"] == "criticalkv_ada"
            row["times_faster_mark"] = FASTER_EXACT if exact else GPU_FASTER if on_gpu else FASTER
            if row["kind"] == "attend":
                row["times_faster_mark"] = FASTER_ATTEND


def verdicts(row: dict[str, Any]) -> list[str]:
    """The marks of a row, each with its result."""
    told: list[str] = []
    if row["model"] != MARKED_MODEL:
        return told
    if row["tokens"] != MARKED_TOKENS and row["kind"] != "select":
        return told
    if row.get("share_mark"):
        met = row["share"] >= row["share_mark"]
        told.append(f"{'met' if met else 'NOT MET'}: share >= {row['share_mark']:.0%}")
    if row.get("beside_mark"):
        met = row["times_beside"] <= row["beside_mark"]
        told.append(
            f"{'met' if met else 'NOT MET'}: {row['times_beside']:.2f}x of {row['beside']} "
            f"<= {row['beside_mark']:g}x"
        )
    if row.get("layers_ms_mark"):
        met = row["layers_ms"] <= row["layers_ms_mark"]
        told.append(
            f"{'met' if met else 'NOT MET'}: {row['layers_ms']:.2f} ms for {GPU_LAYERS} layers "
            f"<= {row['layers_ms_mark']:g}"
        )
    if row.get("times_faster_mark"):
        met = row["times_faster"] >= row["times_faster_mark"]
        peer = "torch" if row["kind"] == "attend" else "kvpress"
        told.append(f"{'met' if met else 'NOT MET'}: >= {row['times_faster_mark']:g}x {peer}")
    return told
