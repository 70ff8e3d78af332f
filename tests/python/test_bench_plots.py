"""The plots of ./dev bench, its kernels and vllm: no names overlap, no axis flattens a line."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plot_texts import boxes, overlapping

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results"


@pytest.fixture
def module(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A module of a bench, such as kernels/roofline. Benches have modules of the same names."""
    folder, _, name = request.param.rpartition("/")
    sys.path.insert(0, str(ROOT / folder))
    before = set(sys.modules)
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.pop(0)
        for imported in set(sys.modules) - before:
            if str(ROOT / folder) in str(getattr(sys.modules[imported], "__file__", "")):
                del sys.modules[imported]


roofline = pytest.mark.parametrize("module", ["tests/bench/kernels/roofline"], indirect=True)


def rows_of(name: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / name).read_text())


def stage(name: str, flops: float, **more: Any) -> dict[str, Any]:
    common = {"model": "m", "tokens": 1, "backend": "cpu", "kind": "score", "min": 1.0}
    return common | {"name": name, "read_bytes": 1e9, "copied_bytes": 0, "flops": flops} | more


CEILINGS = [
    stage("ceiling read", 0, kind="ceiling", read_bytes=30e9),
    stage("ceiling tiles", 4e12, kind="ceiling"),
    stage("ceiling gram", 0, kind="ceiling", flop_rate=1e12),
]


@roofline
@pytest.mark.parametrize("shape", ["committed", "gpu", "crowded"])
def test_no_names_of_the_kernels_plot_overlap(module: Any, shape: str) -> None:
    crowded = [stage(f"score number {i} of many", 2e12 * (1 + i / 1000)) for i in range(20)]
    rows = {
        "committed": lambda: rows_of("kernels.json"),
        "gpu": lambda: rows_of("kernels-gpu.json"),
        "crowded": lambda: CEILINGS + crowded,
    }[shape]()
    figure = module.roofline(rows)
    assert overlapping(figure) == []
    named = [row["name"] for _, _, row in module.Roof.of(module.of_shape(rows)).points]
    found = dict(boxes(figure))
    assert len(named) >= 10
    frame = figure.axes[0].get_window_extent()
    assert all(found[name].x0 > frame.x1 for name in named)


@roofline
def test_no_point_of_the_committed_plot_is_above_its_roof(module: Any) -> None:
    rows = rows_of("kernels.json")
    roof = module.Roof.of(module.of_shape(rows))
    assert len(roof.points) > 10
    assert [row["name"] for x, rate, row in roof.points if rate > roof.at(x)] == []
    line = module.roofline(rows).axes[0].lines[0]
    assert "roof" in line.get_label()
    # The line bends where reads and products take the same time.
    x, y = line.get_data()
    assert list(y) == pytest.approx([roof.at(at) / 1e9 for at in x])
    assert roof.peak / roof.read in list(x)


@roofline
def test_the_roof_is_the_fastest_product_that_was_measured(module: Any) -> None:
    assert module.Roof.of(CEILINGS).peak == 4e12
    assert module.Roof.of(CEILINGS[::2]).peak == 1e12
    assert module.Roof.of(CEILINGS).at(2) == 60e9
    assert module.Roof.of(CEILINGS[:1]).at(1e6) == 30e15  # without products only reads count


@roofline
def test_the_plot_shows_the_shape_that_has_marks(module: Any) -> None:
    assert module.shape_of(rows_of("kernels.json")) == ("llama-3.1-8b", 32768)
    assert module.shape_of([stage("a", 1, tokens=n) for n in (1, 3, 2)]) == ("m", 3)


@roofline
@pytest.mark.parametrize(
    ("wanted", "made"),
    [
        ([0, 5, 9], [0, 5, 9]),
        ([5, 5, 5], [4, 5, 6]),
        ([0, 0.5, 9], [-0.25, 0.75, 9]),
        ([0, 2, 2, 2], [0, 1, 2, 3]),
        ([1, 2.2, 2.2], [0.8, 1.8, 2.8]),
    ],
)
def test_names_move_apart_no_further_than_they_must(module: Any, wanted: Any, made: Any) -> None:
    assert module.spread(wanted, 1) == pytest.approx(made)


rates = pytest.mark.parametrize("module", ["tests/bench/service/rates_plot"], indirect=True)


def rate(bench: str, transport: str, clients: int, mib: int, value: float) -> dict[str, Any]:
    params = {"transport": transport, "clients": clients, "bytes": mib << 20}
    return {"bench": bench, "params": params, "value": value, "ceiling": value, "ceiling_name": "c"}


@rates
def test_no_texts_of_the_plot_of_rates_overlap(module: Any) -> None:
    assert overlapping(module.plot(rows_of("service.json"))) == []


@rates
def test_a_slow_transport_has_an_axis_of_its_own(module: Any) -> None:
    rows = [
        rate("put", transport, clients, mib, speed * mib)
        for transport, speed in (("shm", 100), ("tcp", 1))
        for clients in (1, 8)
        for mib in (1, 4)
    ]
    axes = {found.get_title(loc="left"): found for found in module.plot(rows).axes}
    fast, slow = axes["shared memory, 8 clients"], axes["TCP, 8 clients"]
    assert (slow.get_ylim()[0], fast.get_ylim()[0]) == (0, 0)
    assert slow.get_ylim()[1] < 5 < 400 < fast.get_ylim()[1]
    assert slow.get_ylim() == axes["TCP, 1 client"].get_ylim()


@rates
def test_the_plot_of_rates_speaks_of_things_not_of_identifiers(module: Any) -> None:
    rows = rows_of("service.json")
    told = [text for text, _ in boxes(module.plot(rows))]
    assert not [text for text in [*told, module.alt_text(rows)] if "_" in text or "shm" in text]
    assert {"put", "get from memory", "get from disk", "ceiling of put"} <= set(told)
    assert told.count("512") == 4  # the sizes, as numbers, below each panel


@rates
def test_a_panel_says_which_sizes_were_not_measured(module: Any) -> None:
    missing = rate("put", "tcp", 8, 64, 0)
    del missing["value"]
    rows = [rate("put", "tcp", 1, 64, 2.0), rate("put", "tcp", 8, 4, 1.0), missing]
    told = [text for text, _ in boxes(module.plot(rows))]
    assert "ceiling: c\nnot measured: 64 MiB" in told
    assert module.panels([missing]) == {}


@pytest.mark.parametrize("module", ["client/engines/vllm/showcase/page"], indirect=True)
def test_no_texts_of_the_plot_of_vllm_overlap(module: Any) -> None:
    rows = rows_of("vllm.json")
    assert overlapping(module.plot(rows)) == []
    assert "holds at a time, 2048 tokens: plain, prefix cache 4.0 requests;" in module.alt_text(
        rows
    )


@pytest.mark.parametrize("name", ["kernels", "service", "vllm"])
def test_the_committed_page_begins_with_its_verdict_and_shows_its_plot(name: str) -> None:
    text = (RESULTS / f"{name}.md").read_text()
    assert "marks met" in text.split("\n\n")[1]
    assert f"]({name}.png)\n" in text
    assert (RESULTS / f"{name}.png").is_file()
