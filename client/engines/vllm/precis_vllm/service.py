"""The connector's way to the service: connected in the background, asked without waiting.

Where the service fails it is left alone for some seconds, so that a dead one costs no request its
time. The log tells it once, until the service answers again.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from vllm.logger import init_logger

import precis

from .settings import Settings

logger = init_logger("vllm.precis")

RETRY_SECONDS = 5.0  # between attempts to reach a service that failed
LEASE = 15.0  # seconds from a lookup to the worker's get: a wait for blocks, and some steps


class Service:
    """One process's connection. Any thread may use it.

    Raises, when made:
        precis.Error: the service answered, and refuses this client or this model.
    """

    def __init__(self, settings: Settings, spec: precis.ModelSpec) -> None:
        self._settings, self._spec = settings, spec
        self.block_tokens = spec.block_tokens
        self._lock = threading.Lock()
        self._cache: precis.Cache | None = None
        self._calls: precis.Calls | None = None
        self._model: precis.Model | None = None
        self._connecting = False
        self._again = 0.0  # not before then
        self._told = False
        try:
            self._connect()
        except (precis.Unavailable, precis.TimedOut) as error:
            self.failed(error)

    def _connect(self) -> None:
        s = self._settings
        cache = precis.connect(
            s.address,
            tenant=s.tenant,
            token=s.token,
            tls_ca=s.tls_ca,
            tls_cert=s.tls_cert,
            tls_key=s.tls_key,
            timeout=min(s.load_timeout, 5.0),
        )
        model = cache.register_model(self._spec)
        calls = precis.Calls(cache.with_deadline(s.lookup_timeout), threads=2)
        with self._lock:
            self._cache, self._model, self._calls = cache, model, calls
        if self._told:
            logger.info("precis: %s answers again", s.address)
            self._told = False

    def _connect_behind(self) -> None:
        try:
            self._connect()
        except precis.Error as error:
            self.failed(error)
            self._again = time.monotonic() + RETRY_SECONDS
        finally:
            self._connecting = False

    def failed(self, why: Exception) -> None:
        """Leaves the service alone for a while, if it does not answer."""
        if not isinstance(why, (precis.Unavailable, precis.TimedOut, TimeoutError)):
            if not self._told:
                logger.warning("precis: %s", why)
            self._told = True
            return
        now = time.monotonic()
        if now >= self._again:  # each of many failures must not put the next attempt off
            self._again = now + RETRY_SECONDS
        if not self._told:
            logger.warning(
                "precis: %s does not answer (%s): requests are computed without it until it does",
                self._settings.address,
                why,
            )
        self._told = True

    def up(self) -> bool:
        """Whether it may be asked now; begins to connect where that is due."""
        if time.monotonic() < self._again:
            return False
        with self._lock:
            if self._cache is not None:
                return True
            if self._connecting:
                return False
            self._connecting = True
        threading.Thread(target=self._connect_behind, name="precis-connect", daemon=True).start()
        return False

    def model(self, adapter: str) -> precis.Model:
        """The model under an adapter.

        Raises:
            precis.Unavailable: the service has not answered yet.
        """
        with self._lock:
            if self._model is None:
                raise precis.Unavailable("not connected")
            return self._model.with_adapter(adapter)

    @property
    def cache(self) -> precis.Cache:
        """The client, with the deadline of loads and pushes.

        Raises:
            precis.Unavailable: the service has not answered yet.
        """
        self.up()
        with self._lock:
            if self._cache is None:
                raise precis.Unavailable("not connected")
            return self._cache.with_deadline(self._settings.load_timeout)

    # ---- calls that do not wait -----------------------------------------------------------------

    def look_up(self, path: np.ndarray, adapter: str, keep: Any, align: int) -> int | None:
        """Begins a lookup; its ticket, or None where the service is not up."""
        if not self.up():
            return None
        assert self._calls is not None
        try:
            return self._calls.lookup(self.model(adapter), path, keep, align, LEASE)
        except precis.Error as error:
            self.failed(error)
            return None

    def poll(self) -> list[tuple[int, Any]]:
        """Lookups that are over: tickets with their matches, or with what went wrong."""
        done = [] if self._calls is None else self._calls.poll()
        if any(not isinstance(result, Exception) for _, result in done):
            self._told = False
        return done

    def forget(self, ticket: int) -> None:
        """The lookup's outcome is not wanted any more."""
        if self._calls is not None:
            self._calls.cancel(ticket)
