"""The connector's counters, in vLLM's own /metrics as vllm:precis_*."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

HELP = {
    "hits": "Requests of which a prefix was stored",
    "misses": "Requests of which no prefix was stored",
    "hit_tokens": "Tokens of prompts that stand on a stored prefix",
    "blocks_saved": "KV blocks that compressed prefixes took less than whole ones",
    "loads": "Prefixes fetched into the KV cache",
    "load_bytes": "Bytes fetched",
    "load_seconds": "Seconds that fetches took",
    "stores": "Segments of prompts and turns stored",
    "store_tokens": "Tokens stored",
    "store_bytes": "Bytes that the service keeps of them",
    "store_failures": "Prompts and turns that could not be stored",
    "fallbacks": "Requests computed because the service failed or was late",
}


@dataclass
class Stats(KVConnectorStats):
    """Sums over one interval, by name."""

    def reset(self) -> None:
        """Sets all sums to zero."""
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Adds the sums of `other`."""
        self.data = dict(Counter(self.data) + Counter(other.data))
        return self

    def reduce(self) -> dict[str, int | float]:
        """The sums for vLLM's log."""
        return {f"precis_{name}": round(value, 4) for name, value in sorted(self.data.items())}

    def is_empty(self) -> bool:
        """Whether all sums are zero."""
        return not self.data


class Counts:
    """The counters of one half of the connector. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data: Counter[str] = Counter()

    def add(self, **amounts: float) -> None:
        """Adds to counters of HELP."""
        with self._lock:
            self._data.update(amounts)

    def take(self) -> Stats | None:
        """The counts since the last call."""
        with self._lock:
            data, self._data = self._data, Counter()
        return Stats(data=dict(+data)) if +data else None  # without zeros


class PromMetrics(KVConnectorPromMetrics):
    """One counter for each of HELP."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._counters = {}
        for name, text in HELP.items():
            counter = self._counter_cls(
                f"vllm:precis_{name}", text + ".", labelnames=self._labelnames
            )
            self._counters[name] = {
                engine: counter.labels(*values)
                for engine, values in self.per_engine_labelvalues.items()
            }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Adds one interval's sums."""
        for name, value in transfer_stats_data.items():
            self._counters[name][engine_idx].inc(value)
