"""Shared parts of the plug-ins for engines: settings, and non-blocking access to the service.

An engine's scheduler must not wait, and a dead service must not slow its requests. So lookups do
not block (each is a ticket), and after a failure the service is not asked for some seconds::

    settings = engines.read(engines.Settings, {"keep": 0.3}, "config", engines.CONNECTION)
    service = engines.Service(settings, engines.model_spec(config, settings), logger)
    ticket = service.look_up(path, adapter="", keep=settings.keep, align=16)
    for done, outcome in service.poll():          # in a later step
        ...
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar, get_type_hints

from .budget import Keep, from_pair, to_pair
from .cache import Cache, connect
from .calls import Calls
from .errors import Error, Unavailable
from .model import Model, ModelSpec
from .rows import Match

RETRY_SECONDS = 5.0  # between attempts to reach a service that failed
LEASE = 15.0  # seconds that a match stays readable: time for the request to be scheduled
CONNECTION = ("address", "tenant", "token", "tls_ca", "tls_cert", "tls_key")

_Settings = TypeVar("_Settings")


@dataclass(frozen=True)
class Settings:
    """The settings that all plug-ins share; each adds its own.

    Attributes:
        address, tenant, token, tls_ca, tls_cert, tls_key: the service, as for precis.connect.
        keep: the budget at which prefixes are read, unless a request sets another; by default all
            stored entries.
        min_tokens: shorter prompts are not looked up.
        lookup_timeout: seconds that a request waits for its lookup; after that its prompt is
            computed.
        load_timeout: seconds that a restore or a push may take.
        model, revision: the model's name and the revision of its weights; by default found from its
            files.
    """

    address: str = "127.0.0.1:7470"
    tenant: str = ""
    token: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    keep: Keep | None = None
    min_tokens: int = 256
    lookup_timeout: float = 5.0
    load_timeout: float = 30.0
    model: str = ""
    revision: str = ""


def read(
    of: type[_Settings], given: Mapping[str, Any], where: str, environment: Sequence[str] = ()
) -> _Settings:
    """Makes a dataclass of settings, and checks each value by its field's type.

    Numbers must be 0 or more. Fields of type ``Keep | None`` are budgets; only `store_keep`, the
    budget of stored segments, may be a loss.

    Args:
        given: values by name. where: their source, for messages.
        environment: names that are read from the environment, as PRECIS_NAME, if not given.

    Raises:
        ValueError: naming the key that is unknown or has a wrong value.
    """
    types = get_type_hints(of)
    values, told = {}, {}
    for name in environment:
        variable = f"PRECIS_{name.upper()}"
        if text := os.environ.get(variable):
            values[name], told[name] = text, variable
            if types[name] in (int, float):
                with suppress(ValueError):
                    values[name] = types[name](text)
    for name, value in given.items():
        if name not in types:
            near = get_close_matches(name, types, 1)
            hint = f"do you mean {near[0]!r}?" if near else f"there are {', '.join(types)}"
            raise ValueError(f"{where}: unknown key {name!r}, {hint}")
        values[name], told[name] = value, f"{where}: {name}"
    for name, value in values.items():
        _check(told[name], types[name], value)
    return of(**values)


def _check(name: str, needed: Any, value: Any) -> None:
    if needed == Keep | None:
        try:
            loss = value is not None and from_pair(to_pair(value)).kind == "loss"
        except Error as error:
            raise ValueError(f"{name}: {error}") from None
        if loss and not name.lower().endswith("store_keep"):
            raise ValueError(f"{name}: a loss is only for store_keep")
    elif needed in (int, float):
        kinds, what = (int, "whole number") if needed is int else ((int, float), "number")
        if isinstance(value, bool) or not isinstance(value, kinds) or not value >= 0:
            raise ValueError(f"{name} is {value!r}, must be a {what}, 0 or more")
    elif not isinstance(value, needed):
        raise ValueError(f"{name} is {value!r}, must be a {getattr(needed, '__name__', needed)}")


class Service:
    """One process's connection to the service. Thread-safe.

    After a failure the service is not asked for some seconds, so that a dead service does not slow
    requests. The log reports a failure once, until the service answers again.

    Raises, when made:
        Error: the service answered, and refuses this client or this model.
    """

    def __init__(
        self,
        settings: Settings,
        spec: ModelSpec,
        logger: logging.Logger = logging.getLogger("precis"),  # noqa: B008 - one object
    ) -> None:
        self.settings, self.block_tokens = settings, spec.block_tokens
        self._spec, self._logger = spec, logger
        self._lock = threading.Lock()
        self._connected: tuple[Cache, Model, Calls] | None = None
        self._connecting = False
        self._again = 0.0  # the earliest time of the next attempt
        self._told = False
        try:
            self._connect()
        except (Unavailable, TimeoutError) as error:
            self.failed(error)

    def _connect(self) -> None:
        named = {name: getattr(self.settings, name) for name in CONNECTION}
        cache = connect(**named, timeout=min(self.settings.load_timeout, 5.0))
        model = cache.register_model(self._spec)
        calls = Calls(cache.with_deadline(self.settings.lookup_timeout), threads=2)
        self._connected = cache, model, calls
        if self._told:
            self._logger.info("precis: %s answers again", self.settings.address)
        self.answered()

    def _connect_behind(self) -> None:
        try:
            self._connect()
        except Error as error:
            self.failed(error)
            self._again = time.monotonic() + RETRY_SECONDS
        finally:
            self._connecting = False

    def failed(self, why: Exception) -> None:
        """Logs why a call failed; if the service does not answer, it is not asked for a while."""
        away = isinstance(why, (Unavailable, TimeoutError))
        now = time.monotonic()
        if away and now >= self._again:  # repeated failures must not delay the next attempt
            self._again = now + RETRY_SECONDS
        if not self._told:
            text = f"{self.settings.address} does not answer ({why}): prompts are computed"
            self._logger.warning("precis: %s", text if away else why)
        self._told = True

    def answered(self) -> None:
        """Notes that a call succeeded, so that the next failure is logged again."""
        self._told = False

    def up(self) -> bool:
        """Whether the service may be asked now; starts to connect if that is due."""
        if time.monotonic() < self._again:
            return False
        with self._lock:
            if self._connected is not None:
                return True
            if self._connecting:
                return False
            self._connecting = True
        threading.Thread(target=self._connect_behind, name="precis-connect", daemon=True).start()
        return False

    def model(self, adapter: str = "") -> Model:
        """The model under an adapter.

        Raises:
            Unavailable: the service has not answered yet.
        """
        return self._client()[1].with_adapter(adapter)

    @property
    def cache(self) -> Cache:
        """The client, with the deadline of loads and pushes.

        Raises:
            Unavailable: the service has not answered yet.
        """
        return self._client()[0].with_deadline(self.settings.load_timeout)

    def _client(self) -> tuple[Cache, Model, Calls]:
        self.up()
        connected = self._connected
        if connected is None:
            raise Unavailable("not connected")
        return connected

    # ---- lookups, which do not wait -------------------------------------------------------------

    def look_up(
        self, path: Any, adapter: str, keep: Keep | None, align: int, **more: Any
    ) -> int | None:
        """Starts a lookup; returns its ticket, or None if the service is not up.

        Args:
            more: as of Calls.lookup: hints, a session, and the traceparent.
        """
        if not self.up():
            return None
        try:
            _, model, calls = self._client()
            return calls.lookup(model.with_adapter(adapter), path, keep, align, LEASE, **more)
        except Error as error:
            self.failed(error)
            return None

    def poll(self) -> list[tuple[int, Any]]:
        """The lookups that have ended: tickets with their matches or exceptions."""
        done = [] if self._connected is None else self._connected[2].poll()
        if any(not isinstance(result, Exception) for _, result in done):
            self.answered()
        return done

    def cancel(self, ticket: int) -> None:
        """Drops a lookup whose outcome is no longer needed."""
        self._client()[2].cancel(ticket)


def model_spec(config: Any, settings: Settings) -> ModelSpec:
    """The ModelSpec of an engine's model; equals that of precis.hf for the same weights.

    Args:
        config: as in vLLM and SGLang: hf_config, hf_text_config, and dtype, PyTorch's.

    Raises:
        ValueError: precis.hf cannot serve this kind of model.
    """
    from .hf.spec import spec_of_files

    return spec_of_files(
        config.hf_config,
        config.hf_text_config,
        str(config.dtype).removeprefix("torch."),
        settings.model or None,
        settings.revision or None,
    )


def digest_of(match: Match) -> bytes:
    """A digest of a match's segments and of the numbers of entries that are read of each.

    The match must have been looked up with `keep` or `align`.
    """
    content = hashlib.sha256()
    for link in match.links:
        content.update(f"{link.segment.id} {link.matched_end} ".encode())
        content.update(link.counts.tobytes())
    return content.digest()
