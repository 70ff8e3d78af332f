"""What an operator sets for the connector, and what a request asks of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import precis
from precis import engines


@dataclass(frozen=True)
class Settings(engines.Settings):
    """The connector's settings: kv_connector_extra_config, else the environment, else these.

    In the environment are those of the connection: PRECIS_ADDRESS, PRECIS_TENANT and so on.

    Attributes:
        store: whether prompts are stored; none of fewer than `min_tokens` new tokens is.
        store_keep, recipe: of what is stored; by default the service's budget in force.
        min_gain: seconds of prefill that a stored prefix has to save, beyond what its restore
            takes, to be preferred to what vLLM holds itself.
    """

    store: bool = True
    store_keep: precis.Keep | None = None
    recipe: str = ""
    min_gain: float = 0.0

    @classmethod
    def read(cls, extra: dict[str, Any]) -> Settings:
        """Reads and checks them.

        Raises:
            ValueError: naming the key that is unknown, or whose value is wrong.
        """
        return engines.read(cls, extra, "kv_connector_extra_config", engines.CONNECTION)


WAIT_MAX = 600  # seconds


@dataclass(frozen=True)
class Wish:
    """What one request asks for in its kv_transfer_params.

    Attributes:
        off: it is neither served from the store nor stored.
        keep: the budget at which its prefix is read; None for the connector's.
        store: whether its prompt is stored; None for the connector's setting.
        session: its conversation's name: prompt and answer are stored as its next turn.
        wait: seconds that it waits for its prompt to be stored, by a prefill instance say.
    """

    off: bool = False
    keep: precis.Keep | None = None
    store: bool | None = None
    session: str = ""
    wait: float = 0.0

    @classmethod
    def read(cls, params: dict[str, Any] | None) -> Wish:
        """Reads and checks it. Keys of other connectors are left alone.

        Raises:
            ValueError: naming the value that is wrong.
        """
        if not isinstance(params, dict | None):
            raise ValueError("kv_transfer_params: no object")
        given = {f.name: params[f.name] for f in fields(cls) if params and f.name in params}
        wish = engines.read(cls, given, "kv_transfer_params")
        if not wish.wait <= WAIT_MAX:
            raise ValueError(f"kv_transfer_params: wait is {wish.wait!r}, is at most {WAIT_MAX}")
        if len(wish.session.encode(errors="replace")) > 256 or not wish.session.isprintable():
            raise ValueError("kv_transfer_params: session must be 256 bytes of printable text")
        return wish
