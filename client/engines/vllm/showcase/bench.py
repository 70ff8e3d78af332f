"""./dev bench vllm: compares vLLM with Precis, plain vLLM, and vLLM with its own offloading.

Each system is an instance of `vllm serve`, accessed through the OpenAI API. Rows have the form that
all benches write (bench, params, value, unit, ceiling, ...): `share` is the ceiling over a time, or
a rate over the ceiling.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from page import amount
from serving import BLOCK_SIZE, Asked, Reader, Server

import precis
from precis import engines
from precis.demo.service import Precisd, find_precisd

OFFLOAD = {
    "kv_connector": "OffloadingConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"cpu_bytes_to_use": 2 << 30},
}
POOL_BLOCKS = 288  # of instances whose pool is too small on purpose: 9K tokens
KEEPS = (1.0, 0.5, 0.3, 0.2)
Row = dict[str, Any]


@dataclass(frozen=True)
class System:
    """A system to compare: a name, flags of vllm serve, and for Precis the budget."""

    name: str
    flags: tuple[str, ...] = ()
    keep: float | None = None

    @property
    def params(self) -> dict[str, Any] | None:
        """The parameters of its requests."""
        return None if self.keep is None else {"keep": self.keep, "store": False}


PLAIN = System("plain, no prefix cache", ("--no-enable-prefix-caching",))
CACHED = System("plain, prefix cache")
OFFLOADED = System("vLLM's CPU offloading", ("--kv-transfer-config", json.dumps(OFFLOAD)))


class Bench:
    """One run: all instances share one service."""

    def __init__(self, reader: Reader, folder: Path, quick: bool) -> None:
        self.reader, self.folder = reader, folder
        self.sizes = (1024, 4096) if quick else (1024, 2048, 4096, 6912)
        self.runs = 3 if quick else 5
        self.rows: list[Row] = []
        self.service = Precisd(find_precisd(), folder / "data")

    def add(self, bench: str, system: System, unit: str, values: list[float], **more: Any) -> Row:
        """Adds a row: the median of `values`."""
        params = {"system": system.name} | ({"keep": system.keep} if system.keep else {})
        row: Row = {
            "bench": bench,
            "params": params | more.pop("params", {}),
            "value": statistics.median(values),
            "unit": unit,
            "ceiling": None,
            "ceiling_name": None,
            "share": None,
            "mark": None,
            "runs": len(values),
            "min": min(values),
            "max": max(values),
        } | more
        if row["ceiling"]:
            better = row["ceiling"] / row["value"] if unit == "s" else row["value"] / row["ceiling"]
            row["share"] = better
        self.rows.append(row)
        share = "" if row["share"] is None else f"  {row['share']:.2f}x of {row['ceiling_name']}"
        what = ", ".join(f"{v}" for v in row["params"].values())
        print(f"    {bench:<14} {what:<44} {amount(row, row['value']):>16}{share}", flush=True)
        return row

    @contextmanager
    def serving(self, system: System, *flags: str) -> Iterator[Server]:
        """An instance of a system."""
        # Everything is stored, so that every budget can be read.
        connector = {"address": self.service.address, "store_keep": 1.0}
        if system.keep is None:
            connector = None
        log = self.folder / f"{len(self.rows)}.log"
        with Server(self.reader.folder, log, connector, *system.flags, *flags) as server:
            server.ask(list(range(1000, 1300)), {"off": True}, tokens=2)  # warm-up
            yield server

    # ---- parts ----------------------------------------------------------------------------------

    def store(self) -> dict[int, Asked]:
        """Documents of each size, stored completely by a prefill instance."""
        documents = {n: self.reader.document(n, seed=n) for n in self.sizes}
        with self.serving(System("Precis", keep=1.0)) as prefill:
            for document in documents.values():
                prefill.ask(document.document, {"store": True}, tokens=1)
            prefill.wait_metric("vllm:precis_stores_total", len(documents))
        return documents

    def first_token(self, documents: dict[int, Asked]) -> None:
        """Measures the time to the first token of a question about a document not cached yet."""
        prefill: dict[int, float] = {}
        with self.serving(PLAIN) as server:
            for tokens, asked in documents.items():
                took = self._first_tokens(server, asked, None, reset=False)
                prefill[tokens] = self.add(
                    "vllm_ttft", PLAIN, "s", took, params={"tokens": tokens}
                )["value"]
        for system in (CACHED, OFFLOADED):
            try:
                self._held_by_itself(system, documents, prefill)
            except RuntimeError as error:  # some releases need a GPU for offloading
                self.left_out(system, error)
        with self.serving(System("Precis", keep=1.0)) as server:
            for keep in KEEPS:
                system = System("Precis", keep=keep)
                for tokens, asked in documents.items():
                    mark = {1024: 4.0, 4096: 10.0}.get(tokens) if keep == 0.3 else None
                    before = server.metric("vllm:precis_load_bytes_total")
                    took = self._first_tokens(server, asked, system.params, reset=True)
                    moved = server.metric("vllm:precis_load_bytes_total") - before
                    self.add("vllm_ttft", system, "s", took, params={"tokens": tokens}, mark=mark,
                             ceiling=prefill[tokens], ceiling_name="prefill")  # fmt: skip
                    self.add("vllm_bytes", system, "MiB", [moved / self.runs / 2**20],
                             params={"tokens": tokens})  # fmt: skip

    def _held_by_itself(
        self, system: System, documents: dict[int, Asked], prefill: dict[int, float]
    ) -> None:
        """Measures an instance that has read the documents itself before."""
        with self.serving(system) as server:
            for tokens, asked in documents.items():
                server.ask(asked.document, tokens=1)
                time.sleep(1)
                took = self._first_tokens(server, asked, None, reset=system is OFFLOADED)
                self.add("vllm_ttft", system, "s", took, params={"tokens": tokens},
                         ceiling=prefill[tokens], ceiling_name="prefill")  # fmt: skip

    @staticmethod
    def left_out(system: System, error: Exception) -> None:
        """Prints which system does not run here, and why."""
        why = next((line for line in reversed(str(error).splitlines()) if "Error" in line), "")
        print(f"    left out: {system.name} does not start here: {why.strip()[-120:]}", flush=True)

    def _first_tokens(
        self, server: Server, asked: Asked, params: dict[str, Any] | None, reset: bool
    ) -> list[float]:
        took = []
        for run in range(self.runs):
            if reset:
                clear_prefix_cache(server)
            prompt = asked.prompts()[run % len(asked.questions)]
            took.append(server.ask(prompt, params, tokens=1).seconds)
        return took

    def decode(self, documents: dict[int, Asked], requests: int = 8, tokens: int = 64) -> None:
        """Measures output tokens per second of concurrent requests that share a document."""
        stock: dict[int, float] = {}
        for system in (CACHED, *(System("Precis", keep=keep) for keep in KEEPS)):
            with self.serving(system) as server:
                for size in (1024, 4096):
                    prompts = (documents[size].prompts() * requests)[:requests]
                    server.ask(prompts[0], system.params, tokens=1)
                    rates = []
                    for _ in range(self.runs):
                        began = time.monotonic()
                        at_once(server, prompts, system.params, tokens)
                        rates.append(requests * tokens / (time.monotonic() - began))
                    more: dict[str, Any] = {}
                    if size in stock:
                        more = {"ceiling": stock[size], "ceiling_name": CACHED.name}
                        more["mark"] = 1.0 if (system.keep, size) == (0.3, 1024) else None
                    named = {"tokens": size, "requests": requests}
                    row = self.add("vllm_decode", system, "tokens/s", rates, params=named, **more)
                    stock.setdefault(size, row["value"])

    def fit(self, tokens: int = 2048) -> None:
        """Measures how many conversations over different documents run at once in a small pool."""
        few = POOL_BLOCKS * BLOCK_SIZE // tokens
        documents = [self.reader.document(tokens, seed=10_000 + i) for i in range(6 * few)]
        with self.serving(System("Precis", keep=1.0)) as prefill:
            for document in documents:
                prefill.ask(document.document, {"store": True}, tokens=1)
            prefill.wait_metric("vllm:precis_stores_total", len(documents), 120)
        held = 0.0
        for system in (CACHED, *(System("Precis", keep=keep) for keep in KEEPS)):
            pool = ("--num-gpu-blocks-override", str(POOL_BLOCKS), "--max-model-len", "4096")
            with self.serving(system, *pool) as server:
                running: list[float] = []
                stop = threading.Event()
                watch = threading.Thread(target=self._watch, args=(server, running, stop))
                watch.start()
                began = time.monotonic()
                at_once(server, [d.prompts()[0] for d in documents], system.params, 48)
                seconds = time.monotonic() - began
                stop.set()
                watch.join()
            more = {"ceiling": held, "ceiling_name": CACHED.name} if held else {}
            mark = 4.0 if system.keep == 0.2 else None
            row = self.add("vllm_fit", system, "requests", [max(running, default=0)],
                           params={"tokens": tokens}, mark=mark, **more)  # fmt: skip
            held = held or row["value"]
            self.add("vllm_fit_time", system, "s", [seconds], params={"tokens": tokens})

    @staticmethod
    def _watch(server: Server, running: list[float], stop: threading.Event) -> None:
        while not stop.wait(0.2):
            running.append(server.metric("vllm:num_requests_running"))

    def turns(self, conversations: int = 12, turns: int = 3, tokens: int = 1024) -> None:
        """Measures turns of more conversations than a small pool holds, one after the other."""
        opening = [self.reader.document(tokens, seed=20_000 + i) for i in range(conversations)]
        base = 0.0
        for system in (
            PLAIN,
            CACHED,
            System("Precis", keep=1.0),
            System("Precis", keep=0.3),
        ):
            pool = ("--num-gpu-blocks-override", str(POOL_BLOCKS), "--max-model-len", "4096")
            with self.serving(system, *pool) as server:
                paths = [list(o.document) for o in opening]
                took = []
                for turn in range(turns):
                    for i, path in enumerate(paths):
                        path += opening[i].questions[turn]
                        params = None
                        if system.keep is not None:
                            params = {"keep": system.keep, "session": f"{system.keep} {i}"}
                        answer = server.ask(path, params, tokens=16)
                        path += answer.tokens
                        if turn > 0:
                            took.append(answer.seconds)
            named = {"conversations": conversations, "tokens": tokens}
            more = {"ceiling": base, "ceiling_name": PLAIN.name} if base else {}
            row = self.add("vllm_turn", system, "s", took,
                           params=named, **more)  # fmt: skip
            base = base or row["value"]


def attention(bench: Bench) -> None:
    """Measures attention calls over a batch: vLLM's over whole prefixes, and over ragged ones."""
    import numpy as np
    import torch
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    heads, dim, group, requests = 3, 64, 3, 8
    isa = _get_attn_isa(torch.float32, BLOCK_SIZE, dim)
    for tokens, mark in ((1024, 1.0), (4096, 1.5)):
        blocks = requests * tokens // BLOCK_SIZE + 1
        both = torch.randn(blocks, heads, 2 * BLOCK_SIZE, dim)
        flat = both.view(blocks * heads, 1, 2 * BLOCK_SIZE, dim)
        table = torch.randperm(blocks - 1)[: requests * tokens // BLOCK_SIZE].add(1)
        table = table.view(requests, -1).int()
        query = torch.randn(requests, heads * group, dim)

        def once(q: Any, cache: Any, table: Any, lengths: Any, kv_heads: int) -> float:
            starts = torch.arange(len(lengths) + 1, dtype=torch.int32)
            keys, values = cache.chunk(2, dim=2)
            out = torch.empty_like(q)
            began = time.perf_counter()
            plan = ops.cpu_attn_get_scheduler_metadata(
                num_reqs=len(lengths), num_heads=kv_heads * group, num_kv_heads=kv_heads,
                head_dim=dim, seq_lens=lengths, dtype=q.dtype, query_start_loc=starts,
                causal=True, sliding_window_size=-1, isa=isa, enable_kv_split=True,
            )  # fmt: skip
            ops.cpu_attention_with_kv_cache(
                query=q, key_cache=keys, value_cache=values, output=out, query_start_loc=starts,
                seq_lens=lengths, scale=0.125, causal=True, alibi_slopes=None,
                sliding_window=-1, block_table=table, softcap=0, scheduler_metadata=plan,
                s_aux=None,
            )  # fmt: skip
            return time.perf_counter() - began

        whole = torch.full((requests,), tokens, dtype=torch.int32)
        pages = (table[:, None, :] * heads + torch.arange(heads)[:, None]).reshape(
            -1, table.shape[1]
        )
        share = np.random.default_rng(0).dirichlet(np.ones(requests * heads) * 2) * requests * heads
        rounded = np.clip((share * 0.3 * tokens // BLOCK_SIZE * BLOCK_SIZE), BLOCK_SIZE, tokens)
        ragged = torch.tensor(rounded, dtype=torch.int32)
        by_head = query.reshape(requests * heads, group, dim)
        # Alternating, so that other load on the machine affects both equally.
        pairs = [
            (
                once(query, both, table, whole, heads),
                once(by_head, flat, pages.int().contiguous(), ragged, 1),
            )
            for _ in range(60)
        ][10:]
        took = [list(one) for one in zip(*pairs, strict=True)]
        stock = bench.add("vllm_attention", CACHED, "s", took[0], params={"tokens": tokens})
        bench.add("vllm_attention", System("Precis", keep=0.3), "s", took[1],
                  ceiling=stock["value"], ceiling_name="vLLM's kernel over the whole prefix",
                  mark=mark, params={"tokens": tokens})  # fmt: skip


def step(bench: Bench) -> None:
    """Measures the 99th percentile of scheduler calls while the service is stopped.

    Each request is asked for 20 times, as the scheduler does while its lookup runs.
    """
    from precis_vllm.scheduler import Scheduler
    from precis_vllm.settings import Settings

    spec = precis.ModelSpec("bench", 30, 9, 3, 64, "f32")
    settings = Settings(address=bench.service.address, lookup_timeout=0.2)
    service = engines.Service(settings, spec)
    took: list[float] = []
    os.kill(bench.service.pid, signal.SIGSTOP)
    try:
        for number in range(200):
            scheduler = Scheduler(settings, service, BLOCK_SIZE, 3, 1)
            scheduler.manager = SimpleNamespace(plans={}, resident=lambda plan: None)
            request = SimpleNamespace(
                request_id=str(number), kv_transfer_params=None, mm_features=[], prompt_embeds=None,
                skip_reading_prefix_cache=False, lora_request=None, cache_salt=None,
                num_tokens=4096, num_preemptions=0, num_prompt_tokens=4096,
                all_token_ids=list(range(4096)),
            )  # fmt: skip
            service._again = 0.0  # so that lookups are made although the service does not answer
            calls = [lambda r=request, s=scheduler: s.on_new_request(r)]
            calls += [lambda r=request, s=scheduler: s.matched(r, 0)] * 20
            for call in calls:
                began = time.perf_counter()
                call()
                took.append(time.perf_counter() - began)
    finally:
        os.kill(bench.service.pid, signal.SIGCONT)
    worst = statistics.quantiles(took, n=100)[-1]
    bench.add("vllm_step_p99", System("Precis, service stopped", keep=1.0), "s", [worst],
              ceiling=0.001, ceiling_name="1 ms", mark=1.0)  # fmt: skip


def at_once(server: Server, prompts: list[list[int]], params: Any, tokens: int) -> None:
    """Sends all prompts at the same time."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        list(pool.map(lambda prompt: server.ask(prompt, params, tokens=tokens), prompts))


def clear_prefix_cache(server: Server) -> None:
    """Empties the instance's own prefix cache."""
    request = urllib.request.Request(f"{server.address}/reset_prefix_cache", method="POST")
    urllib.request.urlopen(request, timeout=30).close()


PARTS = ("attention", "step", "first_token", "decode", "fit", "turns")


def main() -> int:
    """Measures. Returns 0 even if marks are missed, because they are for people."""
    parser = argparse.ArgumentParser(prog="./dev bench vllm", description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also writes the rows")
    arguments = parser.parse_args()
    wanted = arguments.only or PARTS
    with tempfile.TemporaryDirectory(prefix="precis-vllm-") as folder:
        bench = Bench(Reader(), Path(folder), arguments.quick)
        if "attention" in wanted:
            attention(bench)
        with bench.service:
            if "step" in wanted:
                step(bench)
            documents = bench.store() if {"first_token", "decode"} & set(wanted) else {}
            if "first_token" in wanted:
                bench.first_token(documents)
            if "decode" in wanted:
                bench.decode(documents)
            if "fit" in wanted:
                bench.fit()
            if "turns" in wanted:
                bench.turns(turns=2 if arguments.quick else 3)
    if arguments.json:
        arguments.json.write_text(json.dumps(bench.rows, indent=1) + "\n")
    marked = [r for r in bench.rows if r["mark"] is not None]
    met = [r for r in marked if r["share"] >= r["mark"]]
    print(f"    {len(met)} of {len(marked)} marks met")
    return 0


if __name__ == "__main__":
    sys.exit(main())
