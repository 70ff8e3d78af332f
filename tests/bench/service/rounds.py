"""What comes of a figure's rounds.

The program measures everything several times over, a pass each, and a pass takes some rounds of a
figure: so a stretch in which the machine was slow spoils one pass of each figure, and not every
round of some.
"""

from __future__ import annotations

import json
from statistics import median_high, median_low  # something measured, also of an even number
from typing import Any

Row = dict[str, Any]


def of_pass(rows: list[Row]) -> dict[str, Row]:
    """By figure: what a pass measured of it, or else the last reason why it did not."""
    found: dict[str, Row] = {}
    for row in rows:
        key = json.dumps([row["bench"], row["params"]], sort_keys=True)
        if "values" in row or "values" not in found.get(key, {}):
            found[key] = row
    return found


def joined(passes: list[list[Row]]) -> list[Row]:
    """One row of each figure, with the rounds of all passes, in the order in which figures first
    came. A row of no rounds says why; one that not all passes have rounds of says in `failed` what
    went wrong in those."""
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


# Of an even number of rounds there are two in the middle: what speaks against us counts, which is
# the worse one of a figure and the better one of what it stands beside.


def worse_median(row: Row, numbers: list[float]) -> float:
    """More is better of a rate, less of everything else."""
    return (median_low if row["unit"] == "GB/s" else median_high)(numbers)


def better_median(row: Row, numbers: list[float]) -> float:
    """Of what stands beside the row's figure."""
    return (median_high if row["unit"] == "GB/s" else median_low)(numbers)


def share(row: Row) -> float:
    """Of its ceiling, in the median round, where ceiling and figure follow each other in a round;
    else of the medians."""

    def one(value: float, ceiling: float) -> float:
        return value / ceiling if row["unit"] == "GB/s" else ceiling / value

    if row.get("paired", True):
        return median_low(map(one, row["values"], row["ceilings"]))
    return one(worse_median(row, row["values"]), better_median(row, row["ceilings"]))


def summed(row: Row) -> Row:
    """The row with `value` (the median), `min`, `max`, `runs`, and `ceiling`, `ceiling_min`,
    `ceiling_max` and `share` where it has one."""
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
