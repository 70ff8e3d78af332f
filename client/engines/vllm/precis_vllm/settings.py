"""The operator's settings of the connector, and the options of a request."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import precis
from precis import engines
from precis.budget import from_pair, to_pair
from precis.hints import hints_in


@dataclass(frozen=True)
class Settings(engines.Settings):
    """The connector's settings: kv_connector_extra_config, else the environment, else the defaults.

    The environment sets those of the connection: PRECIS_ADDRESS, PRECIS_TENANT and so on.

    Attributes:
        store: whether prompts are stored; prompts with fewer than `min_tokens` new tokens are not.
        store_keep, recipe: budget and recipe of stored prompts; by default those in force in the
            service.
        segment_tokens: longer prompts are stored in segments of this length (rounded up to whole
            blocks), each as soon as it is computed; 0 stores every prompt as one segment. So does a
            `store_keep` that is a number of entries or bytes.
        min_gain: seconds of prefill that a stored prefix must save beyond its restore, to be
            preferred to vLLM's own cached blocks.
    """

    store: bool = True
    store_keep: precis.Keep | None = None
    recipe: str = ""
    segment_tokens: int = 8192
    min_gain: float = 0.0

    @property
    def stores_a_number(self) -> bool:
        """Whether `store_keep` is a number of entries or bytes of every segment."""
        pair = to_pair(self.store_keep)
        return pair is not None and from_pair(pair).kind in ("entries", "bytes")

    @classmethod
    def read(cls, extra: dict[str, Any]) -> Settings:
        """Reads and checks the settings.

        Raises:
            ValueError: naming the key that is unknown or has a wrong value.
        """
        return engines.read(cls, extra, "kv_connector_extra_config", engines.CONNECTION)


WAIT_MAX = 600  # seconds


@dataclass(frozen=True)
class Wish:
    """The options of one request, from its kv_transfer_params.

    Attributes:
        off: the request is neither served from the store nor stored.
        keep: the budget at which its prefix is read; None for the connector's setting.
        store: whether its prompt is stored; None for the connector's setting.
        session: the name of its conversation; prompt and answer are stored as the next turn.
        wait: seconds to wait until its prompt is stored, for example by a prefill instance.
        priority, ttl_s, expect_reuse_in_s: as in precis.Cache.begin_put, for what it reads and
            stores.
    """

    off: bool = False
    keep: precis.Keep | None = None
    store: bool | None = None
    session: str = ""
    wait: float = 0.0
    priority: int | None = None
    ttl_s: float | int | None = None
    expect_reuse_in_s: float | int | None = None

    @property
    def hints(self) -> dict[str, Any]:
        """The arguments of puts and lookups."""
        return {name: getattr(self, name) for name in ("priority", "ttl_s", "expect_reuse_in_s")}

    @classmethod
    def read(cls, params: dict[str, Any] | None) -> Wish:
        """Reads and checks the options. Keys of other connectors are ignored.

        Raises:
            ValueError: naming the wrong value.
        """
        if not isinstance(params, dict | None):
            raise ValueError("kv_transfer_params: must be an object")
        given = {f.name: params[f.name] for f in fields(cls) if params and f.name in params}
        wish = engines.read(cls, given, "kv_transfer_params")
        if not wish.wait <= WAIT_MAX:
            raise ValueError(
                f"kv_transfer_params: wait is {wish.wait!r}, must be at most {WAIT_MAX} s"
            )
        if len(wish.session.encode(errors="replace")) > 256 or not wish.session.isprintable():
            raise ValueError("kv_transfer_params: session must be printable text of at most 256 B")
        try:
            hints_in(**wish.hints)
        except precis.InvalidArgument as error:
            raise ValueError(f"kv_transfer_params: {error}") from None
        return wish
