"""The marks that ./dev bench sets for its rows, and the display of their results."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from precis.demo.service import find_precisd

SERVICE = Path(__file__).parents[1] / "bench" / "service"
MODULES = ("marks", "report", "beside_peers", "rates_plot", "reference", "rounds")
LARGE = 64 << 20


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """The bench's modules, which are in no package."""
    sys.path.insert(0, str(SERVICE))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    finally:
        sys.path.remove(str(SERVICE))
        for name in MODULES:
            del sys.modules[name]


def row(bench: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"bench": bench, "params": params, "unit": "GB/s", "ceiling_name": "copy"} | more


def judged(bench: Any, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    made = [bench.rounds.summed(row) for row in bench.rounds.joined([list(rows)])]
    bench.marks.judge(made)
    return made


LOOKUP = {"transport": "shm", "transfers": "running", "path": "new", "quantile": "p99"}
MILLION = {"head_records": 1_000_000, "segments": 3907}
PUT = {"transport": "shm", "bytes": LARGE, "clients": 1}
# One row of every kind that has a mark.
MARKED = [
    ("get_hot", PUT),
    ("get_again", PUT),
    ("put", PUT),
    ("put_compressed", {"transport": "shm", "bytes": 256 << 20, "recipe": "lagkv at 20%"}),
    ("lookup_get", {"transport": "shm", "placement": "one core", "bytes": 65536}),
    ("first_layer", {"transport": "shm", "bytes": LARGE}),
    ("server_cpu", {"transport": "shm", "bytes": LARGE}),
    ("get_cold", PUT),
    ("get_beside_admin", {"transport": "shm", "bytes": 1 << 20, "quantile": "p99"}),
    ("put_sustained", {"durability": "wal", "bytes": 4 << 30}),
    ("lookup", LOOKUP | MILLION),
    ("lookup", LOOKUP | MILLION | {"path": "known"}),
    ("restart", MILLION),
    ("put_beside_peer", {"peer": "NIXL", "transport": "shm", "bytes": LARGE}),
    ("put_foreign_beside_peer", {"peer": "NIXL", "transport": "shm", "bytes": LARGE}),
    ("get_beside_peer", {"peer": "NIXL", "transport": "shm", "bytes": LARGE}),
    ("get_by_path_beside_peer", {"peer": "Redis", "transport": "shm", "bytes": LARGE}),
]


@pytest.mark.parametrize("name", ["lookup", "restart", "cold", "put_get", "first_layer", "commit"])
def test_a_part_that_failed_as_a_whole_is_shown(bench: Any, name: str) -> None:
    made = judged(bench, row(name, {"transport": "shm"}, why_not="no disk"))
    assert bench.report.cells(made[0])[-1].startswith("not measured: no disk")
    assert "not measured: no disk" in bench.report.markdown(made)


@pytest.mark.parametrize(("name", "params"), MARKED)
def test_a_mark_whose_figure_is_missing_counts_as_not_met(
    bench: Any, name: str, params: dict[str, Any]
) -> None:
    met = row("put", PUT | {"bytes": 2 * LARGE}, values=[1.0], ceilings=[1.0])
    made = judged(bench, met, row(name, params, why_not="no disk"))
    assert bench.report.summary(made) == "1 of 2 marks met, 1 not measured"
    assert bench.report.cells(made[1])[-1].startswith("not measured: no disk (")


def test_a_mark_that_a_pass_could_not_measure_says_so(bench: Any) -> None:
    passes = [[row("put", PUT, values=[1.0], ceilings=[1.0])], [row("put", PUT, why_not="no disk")]]
    made = [bench.rounds.summed(each) for each in bench.rounds.joined(passes)]
    bench.marks.judge(made)
    told = "met: share >= 85%; not measured in pass 2: no disk"
    assert bench.report.cells(made[0])[-1] == told


def test_segments_of_head_records_are_told(bench: Any) -> None:
    assert "1,000,000 head records in 3,907 segments" in bench.report.params_text(MILLION)


@pytest.mark.parametrize(
    ("peers", "told"),
    [
        ([1.0, 1.1], "met: faster than it"),
        ([1.0, 2.5], "NOT MET, ranges overlap: faster than it"),
        ([1.0, 1.9, 2.5], "met, ranges overlap: faster than it"),
        ([4.0, 5.0], "NOT MET: faster than it"),
    ],
)
def test_a_peer_whose_range_overlaps_ours_is_told(
    bench: Any, peers: list[float], told: str
) -> None:
    params = {"peer": "NIXL", "transport": "shm", "bytes": LARGE}
    ours = [2.0, 2.0, 3.0]
    (made,) = judged(
        bench, row("put_beside_peer", params, values=ours, ceilings=peers, paired=False)
    )
    assert bench.report.cells(made)[-1] == told


def test_rounds_that_follow_each_other_may_overlap(bench: Any) -> None:
    (made,) = judged(bench, row("put", PUT, values=[1.0, 4.0], ceilings=[1.0, 4.0]))
    assert bench.report.cells(made)[-1] == "met: share >= 85%"


@pytest.mark.parametrize(("value", "met"), [(1.19e-3, True), (1.21e-3, False)])
def test_a_first_layer_has_twice_the_layers_time_and_a_little(
    bench: Any, value: float, met: bool
) -> None:
    params = {"transport": "shm", "bytes": LARGE}
    (made,) = judged(bench, row("first_layer", params, unit="s", values=[value], ceilings=[0.5e-3]))
    assert made["met"] is met


def test_marks_of_even_rounds_take_the_worse_time(bench: Any) -> None:
    (made,) = judged(
        bench, row("lookup", LOOKUP | MILLION, unit="s", values=[0.9e-3, 1.1e-3], ceilings=[1, 1])
    )
    assert made["met"] is False


# ---- comparison with peers


def of_ours(size: int, **more: Any) -> list[dict[str, Any]]:
    params = {"transport": "shm", "bytes": size, "clients": 1}
    return [row(name, params, **more) for name in ("put", "put_foreign", "get_hot", "get_by_path")]


def test_each_peer_stands_beside_what_does_the_same(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def rates(driver: str, transport: str, size: int, runs: int) -> dict[str, list[float]]:
        asked.append((driver, transport, size, runs))
        return {"put": [1.0] * runs, "get": [2.0] * runs}

    monkeypatch.setattr(bench.beside_peers, "rates", rates)
    crowd = row("put", PUT | {"clients": 8}, values=[1.0], ceilings=[1.0])
    made = bench.beside_peers.measure([*of_ours(LARGE, values=[3.0, 4.0]), crowd])
    names = {(each["params"]["peer"], each["bench"]): each["ceilings"] for each in made}
    assert names == {
        ("Redis", "put_beside_peer"): [1.0, 1.0],
        ("Redis", "put_foreign_beside_peer"): [1.0, 1.0],
        ("Redis", "get_by_path_beside_peer"): [2.0, 2.0],
        ("NIXL", "put_beside_peer"): [1.0, 1.0],
        ("NIXL", "put_foreign_beside_peer"): [1.0, 1.0],
        ("NIXL", "get_beside_peer"): [2.0, 2.0],
    }
    assert asked == [("redis_side.py", "shm", LARGE, 2), ("nixl_side.py", "shm", LARGE, 2)]


def test_no_mark_beside_a_peer_is_lost(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def rates(*_: Any) -> dict[str, list[float]]:
        raise RuntimeError("no Redis")

    monkeypatch.setattr(bench.beside_peers, "rates", rates)
    theirs = bench.beside_peers.measure(of_ours(LARGE, values=[3.0]))
    assert {each["why_not"] for each in theirs} == {"no Redis"}

    def never(*_: Any) -> dict[str, list[float]]:
        raise AssertionError("a peer was measured beside nothing")

    monkeypatch.setattr(bench.beside_peers, "rates", never)
    ours = bench.beside_peers.measure(of_ours(LARGE, why_not="no disk"))
    assert {each["why_not"] for each in ours} == {"ours: no disk"}
    assert [each["bench"] for each in ours] == [each["bench"] for each in theirs]
    assert bench.report.summary(judged(bench, *ours)) == "0 of 6 marks met, 6 not measured"


# ---- modules of the peers' drivers


@pytest.fixture(scope="module")
def peers() -> Iterator[Any]:
    """The modules of peers' drivers."""
    names = ("common", "redis_side")
    sys.path.insert(0, str(SERVICE / "peers"))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(SERVICE / "peers"))
        for name in names:
            del sys.modules[name]


@pytest.mark.parametrize("wrong", [False, True])
def test_a_peer_that_gives_other_bytes_has_no_figure(
    peers: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: bool
) -> None:
    size = 1 << 20
    monkeypatch.setattr(peers.common, "POOL_BYTES", 4 * size)
    monkeypatch.setattr(peers.common, "ROUND_BYTES", 2 * size)
    work = peers.common.Work("shm", size, runs=1)
    source, target = work.source(), work.target()
    stored: dict[int, bytes] = {}

    def put(i: int) -> None:
        assert i not in stored, "what is there was to be forgotten before"
        stored[i] = source[i * size : (i + 1) * size]

    def get(i: int) -> None:
        got = stored[i]
        if wrong and i == 3:  # only its last byte
            got = got[:-1] + bytes([got[-1] ^ 1])
        target[i * size : (i + 1) * size] = got

    def measure() -> None:
        peers.common.measure(work, source, target, put, get, stored.pop)

    if wrong:
        with pytest.raises(SystemExit, match="other bytes"):
            measure()
        assert capsys.readouterr().out == ""
    else:
        measure()
        assert set(json.loads(capsys.readouterr().out)) == {"put", "get"}


def test_of_several_ways_the_fastest_median_is_taken(peers: Any) -> None:
    taken = {"a": iter([1.0, 9.0, 9.0]), "b": iter([2.0, 2.0, 9.0])}
    assert peers.redis_side.fastest(("a", "b"), lambda way: next(taken[way])) == "b"


# ---- the program


def test_the_program_says_first_what_it_is_to_measure(bench: Any, tmp_path: Path) -> None:
    program = Path(find_precisd()).with_name("precis_bench")
    command = [program, "--quick", "--runs", "1", "--mib", "1", "--clients", "1"]
    command += ["--records", "4096", "--transport", "tcp", "--dir", tmp_path]
    rows, status = bench.report.run_program([*map(str, command), "--only", "put_get|cold|lookup"])
    assert status == 0
    names = [(each["bench"], each["params"]) for each in rows]
    half = len(rows) // 2
    assert half > 0
    assert all("why_not" in each for each in rows[:half])
    assert all("values" in each for each in rows[half:])
    assert names[:half] == names[half:]
