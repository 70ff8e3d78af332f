"""The results as pages: the verdict, then plots, then tables.

The HTML page is self-contained, and its tables unfold without scripts.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from . import theme
from .plots import Plot, embedded
from .results import Results
from .table import LEGEND, Cells, documents, failures, headline, number, percent, sections, summary
from .verdict import best_rows, verdict

# Lengths are in rem, so that they follow the reader's font size. A plot or a table that is wider
# than the screen scrolls in its own box; the page does not.
_STYLE = """
* { box-sizing: border-box; }
html { font-size: clamp(1rem, .85rem + .25vw, 1.25rem); }
body { font: 1rem/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 112rem; margin: 0 auto; padding: 1.5rem clamp(.75rem, 3vw, 3rem) 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0; }
p, li { max-width: 50rem; overflow-wrap: anywhere; }
.verdict { font-size: 1.2rem; line-height: 1.45; max-width: 60rem; margin: 0; padding: 1rem 1.25rem;
  background: var(--panel); border-left: .3rem solid var(--link); }
.quiet, figcaption { color: var(--quiet); font-size: .9rem; }
.plots { display: grid; gap: 2rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); }
figure { margin: 0; min-width: 0; }
figure.broad { grid-column: 1 / -1; }
.scroll { overflow-x: auto; margin: .5rem 0; }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--link);
  outline-offset: 2px; }
img { display: block; width: 100%; height: auto; }
details { border-top: 1px solid var(--rule); padding: .6rem 0; }
summary { cursor: pointer; color: var(--link); }
summary h3 { display: inline; }
table { border-collapse: collapse; font-size: .85rem; line-height: 1.35;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--quiet); padding-bottom: .4rem; }
th, td { padding: .3rem .45rem; text-align: right; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }
thead th { white-space: normal; vertical-align: bottom; border-bottom: 2px solid var(--quiet); }
.name, th:first-child { text-align: left; }
.name { white-space: normal; overflow-wrap: anywhere; min-width: clamp(7rem, 16vw, 17rem); }
tbody th { font-weight: normal; position: sticky; left: 0; background: var(--paper); }
tbody tr:hover > * { background: var(--panel); }
"""


def page(results: Results, title: str, drawn: dict[str, Plot]) -> str:
    """The whole page."""
    parts = [
        f"<h1>{_escape(title)}</h1>",
        f'<p class="verdict">{_escape(verdict(results))}</p>',
        f"<p>{_escape(headline(results))}.</p>",
        f'<p class="quiet">{_escape(_about(results))}</p>',
    ]
    if drawn:
        parts += ['<h2>Plots</h2>\n<div class="plots">', *map(_figure, drawn.values()), "</div>"]
    lowest = "The lowest loss at each budget"
    parts += [f"<h2>Tables</h2>\n<h3>{lowest}</h3>", _table(lowest, *best_rows(results), (1,))]
    parts += [_folded("Every recipe", _table("Every recipe", *summary(results)), LEGEND)]
    for heading, what, table in sections(results):
        parts += [_folded(heading, _table(heading, *table, (0, 1)), what)]
    for keep in results.keeps:
        heading = f"At a budget of {percent(keep)}{results.unit}"
        parts += [_folded(heading, _table(heading, *_details(results, keep)))]
    for heading, texts in (
        ("Notes", results.notes),
        ("Not run", list(failures(results))),
        ("Contexts", documents(results)),
        ("Recipes in full", [f"{n}: {f}" for n, f in results.settings["recipes"].items()]),
    ):
        if texts:
            parts += [_folded(heading, _list(texts))]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escape(title)}</title>\n<style>{theme.css()}{_STYLE}</style>\n</head>\n"
        "<body>\n<main>\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
    )


def markdown(results: Results, title: str, images: dict[str, Plot], folder: str = "") -> str:
    """A page of the results, with the plots of `images`, which are files in `folder`."""
    lines = [f"# {title}", "", verdict(results), "", headline(results) + ".", ""]
    for name, plot in images.items():
        lines += [f"![{plot.alt}]({folder}/{name}.png)", "", plot.caption, ""]
    lines += ["## Recipes", "", LEGEND, ""]
    header, rows = summary(results)
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines += ["| " + " | ".join(cells) + " |" for cells in [header, rule, *rows]]
    for heading, what, (columns, found) in sections(results):
        rule = ["---"] * 2 + ["---:"] * (len(columns) - 2)
        lines += ["", f"## {heading}", "", what, ""]
        lines += ["| " + " | ".join(cells) + " |" for cells in [columns, rule, *found]]
    for heading, texts in (("Notes", results.notes), ("Not run", list(failures(results)))):
        if texts:
            lines += ["", f"## {heading}", "", *(f"- {text}" for text in texts)]
    lines += ["", "## Contexts", "", *(f"- {text}" for text in documents(results)), ""]
    return "\n".join(lines)


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


def _figure(plot: Plot) -> str:
    """The plot, never so small that its text cannot be read."""
    url, width, height = embedded(plot.figure)
    return (
        f"<figure{' class=broad' if width > 2 * height else ''}><h3>{_escape(plot.title)}</h3>\n"
        f'<div class="scroll" tabindex="0" role="group" aria-label="{_escape(plot.title)}">'
        f'<img alt="{_escape(plot.alt)}" width="{width}" height="{height}" '
        f'style="min-width:{0.9 * width:.0f}px;max-width:{1.5 * width:.0f}px" src="{url}"></div>\n'
        f"<figcaption>{_escape(plot.caption)}</figcaption></figure>"
    )


def _folded(heading: str, body: str, what: str = "") -> str:
    told = f'<p class="quiet">{_escape(what)}</p>\n' if what else ""
    return f"<details><summary><h3>{_escape(heading)}</h3></summary>\n{told}{body}\n</details>"


def _table(label: str, header: Cells, rows: Sequence[Cells], names: Sequence[int] = (0,)) -> str:
    """The table; its columns `names` are names of recipes, which may be broken into lines."""

    def cells(row: Cells, tag: str, scope: str) -> str:
        out = []
        for i, cell in enumerate(row):
            kind = "th" if i == 0 else tag
            attributes = ' class="name"' if i in names else ""
            attributes += f' scope="{scope}"' if kind == "th" else ""
            text = _breakable(cell) if i in names else _escape(cell)
            out.append(f"<{kind}{attributes}>{text}</{kind}>")
        return "<tr>" + "".join(out) + "</tr>"

    body = "\n".join(cells(row, "td", "row") for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{_escape(label)}"><table>'
        f"<thead>{cells(header, 'th', 'col')}</thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _list(texts: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_escape(text)}</li>" for text in texts) + "</ul>"


def _escape(text: str) -> str:
    return html.escape(str(text))


def _breakable(name: str) -> str:
    return re.sub(r"([(=_,])(?=\S)", r"\1<wbr>", _escape(name))
