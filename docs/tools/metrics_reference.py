"""The page of the metrics, from the tables in the code that name and explain them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_TABLE = re.compile(r'PRECIS_(COUNTER|GAUGE|LABELED|HISTOGRAM)\(\w+, "(\w+)", "([^"]*)"\)')
_KINDS = {
    "COUNTER": "counter",
    "GAUGE": "gauge",
    "LABELED": "counter by label",
    "HISTOGRAM": "histogram by label",
}
# add("precis_...", value, "help" "more help");
_ADDED = re.compile(r'add\(\s*"(precis_\w+)",[^;]*?,\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\);', re.DOTALL)


def of_service(root: Path) -> dict[str, tuple[str, str]]:
    """Name -> (kind, help) of every metric of precisd."""
    table = (root / "cachesvc/base/metric_names.def").read_text()
    found = {name: (_KINDS[kind], text) for kind, name, text in _TABLE.findall(table)}
    for source in sorted((root / "cachesvc/server").glob("*.cc")):
        for name, literals in _ADDED.findall(source.read_text()):
            text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"')
            found[name] = ("counter" if name.endswith("_total") else "gauge", text)
    return found


def of_vllm(root: Path) -> dict[str, str]:
    """Name -> help of every counter that the plug-in adds to vLLM's own metrics."""
    source = (root / "client/engines/vllm/precis_vllm/metrics.py").read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "HELP":
            return ast.literal_eval(node.value)
    raise ValueError("precis_vllm/metrics.py has no HELP")


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


def page(root: Path) -> str:
    """The page."""
    service = "".join(
        f"| `{name}` | {kind} | {_cell(text)} |\n"
        for name, (kind, text) in sorted(of_service(root).items())
    )
    vllm = "".join(
        f"| `vllm:precis_{name}_total` | {_cell(text)} |\n" for name, text in of_vllm(root).items()
    )
    return (
        "# Metrics\n\nMade from the code. `precisctl stats` prints the metrics of the service, "
        "`precisctl stats --json` as JSON, and `Cache.stats()` returns them. A counter only grows "
        "while the service runs. A metric marked (of this tenant) covers the tenant that asks; "
        "all others cover the whole service. Histograms, and all the others with labels, are at "
        "`/metrics` of the admin port.\n\n"
        f"## precisd\n\n| metric | kind | meaning |\n| --- | --- | --- |\n{service}\n"
        "## vLLM\n\nThe plug-in adds these counters to vLLM's own `/metrics`.\n\n"
        f"| metric | meaning |\n| --- | --- |\n{vllm}"
    )
