"""Settings, and the way to the service, which is asked on threads so that nobody waits."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

import precis

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0  # between attempts to reach a service that failed
LEASE = 15.0  # seconds from a lookup to its load: a wait for room, and some steps


@dataclass(frozen=True)
class Settings:
    """The plug-in's settings, each by its name in capitals after PRECIS_ in the environment.

    Attributes:
        address, tenant, token, tls_ca, tls_cert, tls_key: the service, as precis.connect takes it.
        keep: the budget of requests that name none; "" for all that is stored.
        min_tokens: the fewest tokens that are looked up.
        lookup_timeout, load_timeout: seconds that a request waits for a lookup, a restore may take.
        model, revision: as the store knows the model, where its files do not tell.
    """

    address: str = "127.0.0.1:7470"
    tenant: str = ""
    token: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    keep: str = ""
    min_tokens: int = 256
    lookup_timeout: float = 1.0
    load_timeout: float = 30.0
    model: str = ""
    revision: str = ""

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Reads them.

        Raises:
            ValueError: naming the variable that is no number, or below 0.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            name = f"PRECIS_{field.name.upper()}"
            if not (text := environment.get(name)):
                continue
            values[field.name] = text
            if field.type != "str":
                try:
                    values[field.name] = number = {"int": int, "float": float}[field.type](text)
                except ValueError:
                    raise ValueError(f"{name} is {text!r}, needs a number") from None
                if not number >= 0:
                    raise ValueError(f"{name} is {text!r}, must be 0 or more")
        return cls(**values)


class Service:
    """One engine's connection. Lookups are misses for some seconds after it failed.

    Attributes:
        settings: it was made with.
        heads, dim, dtype: of the K and V that fetch() brings, PyTorch's dtype.
    """

    def __init__(self, settings: Settings, spec: precis.ModelSpec) -> None:
        self.settings = settings
        self.heads, self.dim = spec.num_kv_heads, spec.head_dim
        short = precis.model.dtype_name(spec.dtype)
        self.dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[short]
        self._spec = spec
        self._lock = threading.Lock()
        self._connected: tuple[precis.Cache, precis.Model] | None = None
        self._again = 0.0  # not before then
        self._lookups = ThreadPoolExecutor(2, "precis-lookup")
        self._loads = ThreadPoolExecutor(2, "precis-load")

    def find(self, path: np.ndarray, keep: Any) -> Future[precis.Match | None]:
        """Looks a path of uint32 tokens up; None for a miss, whatever its reason."""

        def ask(cache: precis.Cache, model: precis.Model) -> precis.Match | None:
            match = cache.lookup(model, path, keep=keep, align=1, lease=LEASE)
            return match if match and match.plan.any() else None

        return self._lookups.submit(self._call, ask, self.settings.lookup_timeout)

    def fetch(self, match: precis.Match) -> Future[list[tuple[torch.Tensor, torch.Tensor]] | None]:
        """Brings K and V of each layer, [heads, most entries of a head, dim]; None if it failed."""

        def load(cache: precis.Cache, model: precis.Model) -> list[Any]:
            rows = []
            for most in match.plan.max(1).tolist():
                shape = (2, self.heads, max(1, most), self.dim)
                rows.append(tuple(torch.empty(shape, dtype=self.dtype)))
            cache.get(match, out=rows).wait()
            return rows

        return self._loads.submit(self._call, load, self.settings.load_timeout)

    def _call(self, what: Callable[[precis.Cache, precis.Model], Any], deadline: float) -> Any:
        if time.monotonic() < self._again:
            return None
        try:
            cache, model = self._connection()
            return what(cache.with_deadline(deadline), model)
        except Exception as error:  # a prefix is worth less than the request
            if isinstance(error, (precis.Unavailable, precis.TimedOut)):
                self._again = time.monotonic() + RETRY_SECONDS
            logger.warning("precis: %s; the prompt is computed", error)
            return None

    def _connection(self) -> tuple[precis.Cache, precis.Model]:
        with self._lock:
            if self._connected is None:
                s = self.settings
                names = ("tenant", "token", "tls_ca", "tls_cert", "tls_key")
                more = {name: getattr(s, name) for name in names if getattr(s, name)}
                cache = precis.connect(s.address, timeout=min(s.load_timeout, 5.0), **more)
                self._connected = cache, cache.register_model(self._spec)
            return self._connected
