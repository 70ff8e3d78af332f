"""Lints and renders the Helm chart with Helm itself, and validates what it renders against the
schemas of a Kubernetes version. Runs in the environment of ./dev setup --deploy.

    render_chart.py CHART VALUES.json KUBERNETES_VERSION

Prints JSON: lint (messages with a severity: 3 is an error), objects (rendered), notes (text). Exits
with 1 and the reason on stderr if the chart cannot be rendered, or an object is not valid.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import helm_python as helm
import kubernetes_validate
import yaml


def main(folder: str, values_file: str, kubernetes: str) -> None:
    values = json.loads(Path(values_file).read_text())
    lint = helm.lint(folder)["messages"]
    with helm.Chart.load(folder) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name="kv", namespace="llm")
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    objects = [part for text in texts for part in yaml.safe_load_all(text) if part]
    for part in objects:
        kubernetes_validate.validate(part, kubernetes, strict=True)
    notes = "".join(text for name, text in files.items() if name.endswith("NOTES.txt"))
    print(json.dumps({"lint": lint, "objects": objects, "notes": notes}))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (helm.HelmError, kubernetes_validate.ValidationError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
