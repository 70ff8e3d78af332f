"""Settings, and access to the service on threads, so that the scheduler does not wait."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

import precis
from precis import engines


@dataclass(frozen=True)
class Settings(engines.Settings):
    """The plug-in's settings, from environment variables: PRECIS_ and the name in capitals."""

    lookup_timeout: float = 1.0

    @classmethod
    def read(cls) -> Settings:
        """Reads and checks the settings.

        Raises:
            ValueError: naming the variable with a wrong value.
        """
        return engines.read(cls, {}, "", [field.name for field in fields(cls)])


class Service(engines.Service):
    """One engine's connection. For some seconds after a failure, lookups are misses.

    Attributes:
        heads, dim, dtype: of the K and V that fetch() returns; dtype is PyTorch's.
    """

    def __init__(self, settings: Settings, spec: precis.ModelSpec) -> None:
        super().__init__(settings, spec, logging.getLogger(__name__))
        self.heads, self.dim = spec.num_kv_heads, spec.head_dim
        short = precis.model.dtype_name(spec.dtype)
        self.dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[short]
        self._lookups = ThreadPoolExecutor(2, "precis-lookup")
        self._loads = ThreadPoolExecutor(2, "precis-load")

    def find(self, path: np.ndarray, keep: Any) -> Future[precis.Match | None]:
        """Looks up a path of uint32 tokens; None for a miss for any reason."""

        def ask() -> precis.Match | None:
            cache = self.cache.with_deadline(self.settings.lookup_timeout)
            match = cache.lookup(self.model(), path, keep=keep, align=1, lease=engines.LEASE)
            return match if match and match.plan.any() else None

        return self._lookups.submit(self._call, ask)

    def fetch(self, match: precis.Match) -> Future[list[tuple[torch.Tensor, torch.Tensor]] | None]:
        """Fetches K and V of each layer, [heads, most entries of a head, dim]; None on an error."""

        def load() -> list[Any]:
            rows = []
            for most in match.plan.max(1).tolist():
                shape = (2, self.heads, max(1, most), self.dim)
                rows.append(tuple(torch.empty(shape, dtype=self.dtype)))
            self.cache.get(match, out=rows).wait()
            return rows

        return self._loads.submit(self._call, load)

    def _call(self, what: Callable[[], Any]) -> Any:
        if not self.up():
            return None
        try:
            result = what()
        except Exception as error:  # a failed fetch must not fail the request
            self.failed(error)
            return None
        self.answered()
        return result
