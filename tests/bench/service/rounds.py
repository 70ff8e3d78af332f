"""Computes results from a figure's rounds.

The program measures every figure in several passes, with some rounds in each pass. So if the
machine is slow for a while, each figure loses at most some rounds of one pass, instead of some
figures losing all of theirs.
"""

from __future__ import annotations

import json
from statistics import median_high, median_low  # always a measured value, unlike median()
from typing import Any

Row = dict[str, Any]


def of_pass(rows: list[Row]) -> dict[str, Row]:
    """By figure: the row that a pass measured, or else the row with the last reason for none."""
    found: dict[str, Row] = {}
    for row in rows:
        key = json.dumps([row["bench"], row["params"]], sort_keys=True)
        if "values" in row or "values" not in found.get(key, {}):
            found[key] = row
    return found


def joined(passes: list[list[Row]]) -> list[Row]:
    """One row of each figure, with the rounds of all passes, in the order in which figures first
    appeared. A row without rounds has the reason in `why_not`. If only some passes have rounds,
    `failed` lists the reasons of the others."""
    found = [of_pass(rows) for rows in passes]
    made = []
    for key in dict.fromkeys(key for rows in found for key in rows):
        of_figure = [rows.get(key, {"why_not": "nothing was said of it"}) for rows in found]
        measured = [row for row in of_figure if "values" in row]
        why = {
            number: row["why_not"] for number, row in enumerate(of_figure, 1) if "values" not in row
        }
        if not measured:
            first = next(rows[key] for rows in found if key in rows)
            made.append(first | {"why_not": "; ".join(dict.fromkeys(why.values()))})
            continue
        row = dict(measured[0])
        for name in ("values", "ceilings"):
            if name in row:
                row[name] = [number for each in measured for number in each[name]]
        if why:
            row["failed"] = [f"pass {number}: {reason}" for number, reason in why.items()]
        made.append(row)
    return made


# An even number of rounds has two middle values. We take the less favourable one: the worse value
# of our figure and the better value of its ceiling.


def worse_median(row: Row, numbers: list[float]) -> float:
    """The worse middle value of the row's figure: more is better for rates, less for the rest."""
    return (median_low if row["unit"] == "GB/s" else median_high)(numbers)


def better_median(row: Row, numbers: list[float]) -> float:
    """The better middle value of the row's ceiling."""
    return (median_high if row["unit"] == "GB/s" else median_low)(numbers)


def share(row: Row) -> float:
    """The figure's share of its ceiling: the median of the rounds' shares if each round measured
    both, or else the share of the medians."""

    def one(value: float, ceiling: float) -> float:
        return value / ceiling if row["unit"] == "GB/s" else ceiling / value

    if row.get("paired", True):
        return median_low(map(one, row["values"], row["ceilings"]))
    return one(worse_median(row, row["values"]), better_median(row, row["ceilings"]))


def summed(row: Row) -> Row:
    """The row with `value` (the median), `min`, `max` and `runs`, and, if it has ceilings,
    `ceiling`, `ceiling_min`, `ceiling_max` and `share`."""
    if "values" not in row:
        return row
    values = row["values"]
    found: Row = {"value": worse_median(row, values), "min": min(values), "max": max(values)}
    found["runs"] = len(values)
    if "ceilings" in row:
        ceilings = row["ceilings"]
        found |= {"ceiling": better_median(row, ceilings), "share": share(row)}
        found |= {"ceiling_min": min(ceilings), "ceiling_max": max(ceilings)}
    return row | found
