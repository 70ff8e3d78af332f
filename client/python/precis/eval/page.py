"""One self-contained HTML page: tables and plots, readable without scripts or a network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import plots
from .results import Results
from .table import LEGEND, Cells, documents, failures, headline, number, percent, sections, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p, li { max-width: 48rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #444; vertical-align: bottom; }
td { border-bottom: 1px solid #e4e4e4; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; }
figcaption, .quiet { color: #555; font-size: 13px; }
"""


def page(results: Results, title: str, figures: dict[str, Figure]) -> str:
    """The whole page."""
    parts = [
        f"<h1>{_escape(title)}</h1>",
        f"<p>{_escape(headline(results))}.</p>",
        f'<p class="quiet">{_escape(_about(results))}</p>',
        "<h2>Recipes</h2>",
        _table(*summary(results)),
        f'<p class="quiet">{_escape(LEGEND)}</p>',
    ]
    for name, figure in figures.items():
        caption = _escape(plots.CAPTIONS[name])
        parts.append(
            f'<figure><img alt="{caption}" src="{plots.data_url(figure)}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    for heading, what, table in sections(results):
        parts += [f"<h2>{heading}</h2>", _table(*table), f'<p class="quiet">{_escape(what)}</p>']
    for keep in results.keeps:
        parts += [f"<h2>At keep {percent(keep)}</h2>", _table(*_details(results, keep))]
    for heading, texts in (("Notes", results.notes), ("Not run", list(failures(results)))):
        if texts:
            parts += [f"<h2>{heading}</h2>", _list(texts)]
    recipes = results.settings["recipes"]
    parts += ["<h2>Contexts</h2>", _list(documents(results))]
    parts += ["<h2>Recipes in full</h2>", _list([f"{n}: {f}" for n, f in recipes.items()])]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _about(results: Results) -> str:
    model, settings = results.model, results.settings
    return (
        f"{model['name']} ({model['revision'] or 'no revision'}): {model['num_layers']} layers, "
        f"{model['num_q_heads']} query heads over {model['num_kv_heads']} KV heads of "
        f"{model['head_dim']}, {model['dtype']}. Every context has four hidden facts and is "
        "compressed before any question is known. The positions of a question continue from the "
        f"context's original length. Precis {settings['precis']}, {settings['seconds']:.0f} s in "
        "all."
    )


def _details(results: Results, keep: float) -> tuple[Cells, list[Cells]]:
    header = ["recipe", "right", "NLL", "above full", "moved", "entries", "bytes", "of original"]
    rows = []
    for name in results.names():
        row = results.row(name, keep)
        if row is None or row.failed:
            continue
        delta, error = results.delta(row)
        counts = [n for layer in row.plan for n in layer]
        rows.append(
            [
                name,
                number(row.accuracy, 3),
                number(row.mean_nll, 3),
                f"{number(delta, 3, signed=True)} ±{number(error, 3)}",
                number(row.mean_perturbation, 3),
                f"{min(counts)} to {max(counts)}",
                f"{row.bytes:,}",
                f"{row.bytes / results.original_bytes:.1%}",
            ]
        )
    return header, rows


def _table(header: Cells, rows: Sequence[Cells]) -> str:
    head = "".join(f"<th>{_escape(cell)}</th>" for cell in header)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{_escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n'
        "</tbody></table></div>"
    )


def _list(texts: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_escape(text)}</li>" for text in texts) + "</ul>"


def _escape(text: str) -> str:
    return html.escape(str(text))
