"""What comes of a figure's rounds.

The program measures everything several times over, a pass each, and a pass takes some rounds of a
figure: so a stretch in which the machine was slow spoils one pass of each figure, and not every
round of some.
"""

from __future__ import annotations

import json
from statistics import median_low  # something that was measured, also of an even number
from typing import Any

Row = dict[str, Any]


def joined(passes: list[list[Row]]) -> list[Row]:
    """One row of each figure, with the rounds of all passes, in the order in which figures first
    came. A row of no rounds says why only where no pass has any."""
    rows: dict[str, Row] = {}
    for row in (row for rows_of_pass in passes for row in rows_of_pass):
        key = json.dumps([row["bench"], row["params"]], sort_keys=True)
        known = rows.setdefault(key, row)
        if known is row:
            continue
        if "values" not in known:
            rows[key] = row
        elif "values" in row:
            rows[key] = known | {
                name: known[name] + row[name] for name in ("values", "ceilings") if name in known
            }
    return list(rows.values())


def share(row: Row) -> float:
    """Of its ceiling: more is better of a rate, less of a time. In the median round, where ceiling
    and figure follow each other in a round; else of the medians."""

    def one(value: float, ceiling: float) -> float:
        return value / ceiling if row["unit"] == "GB/s" else ceiling / value

    if row.get("paired", True):
        return median_low(map(one, row["values"], row["ceilings"]))
    return one(median_low(row["values"]), median_low(row["ceilings"]))


def summed(row: Row) -> Row:
    """The row with `value` (the median), `min`, `max`, `runs`, and `ceiling`, `ceiling_min`,
    `ceiling_max` and `share` where it has one."""
    if "values" not in row:
        return row
    values = row["values"]
    found: Row = {"value": median_low(values), "min": min(values), "max": max(values)}
    found["runs"] = len(values)
    if "ceilings" in row:
        ceilings = row["ceilings"]
        found |= {"ceiling": median_low(ceilings), "share": share(row)}
        found |= {"ceiling_min": min(ceilings), "ceiling_max": max(ceilings)}
    return row | found
