"""Results as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from . import claims
from .results import Results, Row
from .smallest import Smallest, smallest_budgets

Cells = list[str]


def percent(share: float) -> str:
    """A share for people."""
    return f"{100 * share:g}%"


def number(value: float, digits: int = 2, signed: bool = False) -> str:
    """A figure, or a dash if there is none."""
    if math.isnan(value):
        return "-"
    return f"{value:{'+' if signed else ''}.{digits}f}"


def headline(results: Results) -> str:
    """The full cache, the baseline of all figures."""
    full, settings = results.full, results.settings
    asked = len(full.nll)
    return (
        f"full cache: {sum(full.right)} of {asked} answers right ({full.accuracy:.3f}), NLL "
        f"{full.mean_nll:.3f}; {settings['contexts']} contexts of at most {settings['tokens']} "
        f"tokens, seed {settings['seed']}; prefill {results.prefill_seconds:.2f} s"
    )


def delta_text(results: Results, row: Row) -> str:
    """The NLL minus that of the full cache, and its standard error."""
    delta, error = results.delta(row)
    text = number(delta, signed=True)
    return text if math.isnan(error) else f"{text} ±{error:.2f}"


def summary(results: Results) -> tuple[Cells, list[Cells]]:
    """Header and rows: for each budget, accuracy and NLL minus that of the full cache."""
    keeps = results.keeps
    header = ["recipe"]
    for keep in keeps:
        header += [f"right @{percent(keep)}", f"NLL @{percent(keep)}"]
    smallest = percent(keeps[-1])
    header += [f"moved @{smallest}", f"bytes @{smallest}", "model s", "compress s"]
    rows = [
        _summary_row(results, name, source)
        for source in ("precis", "kvpress")
        for name in results.names(source)
    ]
    return header, rows


def _summary_row(results: Results, name: str, source: str) -> Cells:
    rows = [results.row(name, keep, source) for keep in results.keeps]
    cells = [name if source == "precis" else f"kvpress {name}"]
    for row in rows:
        if row is None or row.failed:
            cells += ["-" if row is None else "failed", "-"]
        else:
            cells += [f"{row.accuracy:.2f}", delta_text(results, row)]
    last = rows[-1]
    if last is None or last.failed:
        return cells + ["-"] * 4
    cells.append(number(last.mean_perturbation))
    share = math.nan if last.bytes is None else last.bytes / results.original_bytes
    cells.append("-" if math.isnan(share) else f"{share:.1%}")
    cells.append(number(last.model_seconds) if source == "precis" else "-")
    cells.append(number(last.compress_seconds))
    return cells


def beside_kvpress(results: Results) -> tuple[Cells, list[Cells]]:
    """How much higher the NLL of each preset is than that of the press it is compared with."""
    header = ["preset", "press", *(f"NLL @{percent(keep)}" for keep in results.keeps)]
    rows = []
    for name in results.names("kvpress"):
        pairs = [_pair(results, name, keep) for keep in results.keeps]
        if any(pairs):
            preset = next(theirs.beside for _, theirs in filter(None, pairs))
            rows.append([preset, name, *(_difference(results, pair) for pair in pairs)])
    return header, rows


def _pair(results: Results, press: str, keep: float) -> tuple[Row, Row] | None:
    """The preset's row and the press's row, if both ran."""
    theirs = results.row(press, keep, "kvpress")
    ours = results.row(theirs.beside, keep) if theirs is not None and theirs.beside else None
    if ours is None or ours.failed or theirs.failed:
        return None
    return ours, theirs


def _difference(results: Results, pair: tuple[Row, Row] | None) -> str:
    if pair is None:
        return "-"
    delta, error = results.delta(*pair)
    return f"{number(delta, signed=True)} ±{number(error)}"


def budgets_for_loss(results: Results) -> tuple[Cells, list[Cells]]:
    """Header and rows: the smallest budget of each recipe for the loss that was asked for."""
    header = ["recipe", "budget", "loss where chosen", "loss on other contexts", "worst of these"]
    most = results.settings.get("loss")
    if most is None:
        return header, []
    return header, [_smallest_row(results, found) for found in smallest_budgets(results, most)]


def _smallest_row(results: Results, found: Smallest | str) -> Cells:
    if isinstance(found, str):
        return [found, "none of these", "-", "-", "-"]
    return [
        found.name,
        f"{percent(found.keep)}{results.unit or ' of the entries'}",
        number(found.chosen, signed=True),
        f"{number(found.loss, signed=True)} ±{number(found.error)}",
        number(found.worst, signed=True),
    ]


def sections(results: Results) -> Iterator[tuple[str, str, tuple[Cells, list[Cells]]]]:
    """Further tables that have rows: heading, explanation, header and rows."""
    for heading, what, table in (
        (
            f"The smallest budget that costs at most {results.settings.get('loss') or 0:g}",
            "Every second context chose the budget, among those evaluated, and the others judged "
            "it. The loss is the NLL minus that of the full cache, as a mean over contexts, ± its "
            "standard error.",
            budgets_for_loss(results),
        ),
        (
            "Compared with kvpress",
            "NLL of our preset minus that of the press on the same contexts, ± its standard error "
            "over contexts. A preset of policies.md may differ from the press's own defaults.",
            beside_kvpress(results),
        ),
        (
            "Claims: the effect of a selector",
            "CriticalKV claims that the output after W_O moves less (L1) than under its base "
            "policy. Shown is the share of (layer, query head) pairs where it does, for queries of "
            "a continuation.",
            claims.selectors(results),
        ),
        (
            "Claims: the effect of learnt budgets",
            "LU-KV claims that budgets learnt offline move the output less than uniform and "
            "pyramid budgets with the same scorer. Shown is the change of the relative L2 "
            "distance, a mean over layers, and that distance for the learnt budgets and the base.",
            claims.budgets(results),
        ),
    ):
        if table[1]:
            yield heading, what, table


def failures(results: Results) -> Iterator[str]:
    """Why rows are missing, each reason once."""
    seen = set()
    for row in results.rows:
        name = row.name if row.source == "precis" else f"kvpress {row.name}"
        if row.failed and (name, row.failed) not in seen:
            seen.add((name, row.failed))
            yield f"{name}: {row.failed}"


LEGEND = (
    "right: share of answers whose every token is the greedy choice. NLL: mean negative "
    "log-likelihood of the answers' tokens minus that of the full cache on the same contexts, ± "
    "its standard error over contexts. moved: relative L2 distance between attention's output "
    "over the kept entries and over the full cache, for queries of a continuation, as a mean over "
    "layers. bytes: stored size, with positions, seats and scores, as a share of uncompressed K "
    "and V. model s: the model's seconds after its prefill to compute the scorer's inputs. "
    "compress s: seconds from scores to records, for one context at the largest budget."
)


def text_table(header: Cells, rows: Sequence[Cells]) -> str:
    """Columns as wide as they need to be; figures right-aligned."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Cells) -> str:
        first, *rest = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def documents(results: Results) -> list[str]:
    """Each text, with the seeds of its contexts."""
    by_text: dict[str, list[str]] = {}
    for document in results.settings["documents"]:
        by_text.setdefault(document["text"], []).append(document["seed"])
    return [f"{text}: seeds {', '.join(seeds)}" for text, seeds in by_text.items()]
