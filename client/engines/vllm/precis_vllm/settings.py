"""What an operator sets for the connector, and what a request asks of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

import precis


class BadRequest(ValueError):
    """A request's kv_transfer_params say what the connector does not take."""


@dataclass(frozen=True)
class Settings:
    """The connector's settings: kv_connector_extra_config, else the environment, else these.

    Attributes:
        address, tenant, token, tls_ca, tls_cert, tls_key: the service, as precis.connect takes it;
            in the environment PRECIS_ADDRESS, PRECIS_TENANT and so on.
        keep: the budget at which prefixes are read, unless a request says another; by default all
            that is stored. A share in (0, 1] or text such as "128 entries".
        store: whether prompts are stored.
        store_keep, recipe: of what is stored; by default the service's budget in force.
        min_tokens: the fewest new tokens that are stored, and the fewest that are looked up.
        min_gain: seconds of prefill that a stored prefix has to save, beyond what its restore
            takes, to be preferred to what vLLM holds itself.
        lookup_timeout: seconds that a request waits for a lookup before it is computed instead.
        load_timeout: seconds that a restore or a push may take.
        model, revision: the model's name and the revision of its weights, where they are not to be
            found out from its files.
    """

    address: str = "127.0.0.1:7470"
    tenant: str = ""
    token: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    keep: float | str | None = None
    store: bool = True
    store_keep: float | str | None = None
    recipe: str = ""
    min_tokens: int = 256
    min_gain: float = 0.0
    lookup_timeout: float = 5.0
    load_timeout: float = 30.0
    model: str = ""
    revision: str = ""

    @classmethod
    def read(cls, extra: dict[str, Any]) -> Settings:
        """Reads and checks them.

        Raises:
            ValueError: naming the key that is unknown, or whose value is wrong.
        """
        types = {field.name: field.type for field in fields(cls)}
        values: dict[str, Any] = {}
        for name in ("address", "tenant", "token", "tls_ca", "tls_cert", "tls_key"):
            if text := os.environ.get(f"PRECIS_{name.upper()}"):
                values[name] = text
        for name, value in extra.items():
            if name not in types:
                near = get_close_matches(name, types, 1)
                hint = f", do you mean {near[0]!r}?" if near else f"; there are {', '.join(types)}"
                raise ValueError(f"kv_connector_extra_config: unknown key {name!r}{hint}")
            values[name] = value
        settings = cls(**values)
        for name in ("keep", "store_keep"):
            check_keep(getattr(settings, name), f"kv_connector_extra_config: {name}")
        for name, kind in types.items():
            value = getattr(settings, name)
            if kind in ("bool", "str") and type(value).__name__ != kind:
                raise ValueError(f"kv_connector_extra_config: {name} is {value!r}, needs a {kind}")
            number = kind in ("int", "float")
            if number and (
                isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0
            ):
                raise ValueError(f"kv_connector_extra_config: {name} is {value!r}, needs a number")
        return settings


def check_keep(keep: float | str | None, field: str) -> None:
    """Whether a prefix may be read, or stored, at this budget.

    Raises:
        ValueError: naming `field`.
    """
    if keep is None:
        return
    try:
        budget = precis.budget.from_pair(precis.budget.to_pair(keep, field))
        if budget.kind == "quality" and not field.endswith("store_keep"):
            raise ValueError(f"{field}: a quality target is for what is stored")
    except precis.Error as error:
        raise ValueError(str(error)) from None


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
    keep: float | str | None = None
    store: bool | None = None
    session: str = ""
    wait: float = 0.0

    @classmethod
    def read(cls, params: dict[str, Any] | None) -> Wish:
        """Reads and checks it. Keys of other connectors are left alone.

        Raises:
            BadRequest: naming the value that is wrong.
        """
        if not isinstance(params, dict | None):
            raise BadRequest("kv_transfer_params: no object")
        given = {f.name: params[f.name] for f in fields(cls) if params and f.name in params}
        wish = cls(**given)
        try:
            check_keep(wish.keep, "kv_transfer_params: keep")
        except ValueError as error:
            raise BadRequest(str(error)) from None
        for name, kind in (("off", bool), ("store", bool), ("session", str), ("wait", float)):
            value = given.get(name)
            fine = isinstance(value, kind) or (
                kind is float and isinstance(value, int) and not isinstance(value, bool)
            )
            if name in given and not fine:
                raise BadRequest(
                    f"kv_transfer_params: {name} is {value!r}, needs a {kind.__name__}"
                )
        if not 0 <= wish.wait <= WAIT_MAX:  # NaN neither
            raise BadRequest(f"kv_transfer_params: wait is {wish.wait!r}, must be 0 to {WAIT_MAX}")
        if len(wish.session.encode(errors="replace")) > 256 or not wish.session.isprintable():
            raise BadRequest("kv_transfer_params: session must be 256 bytes of printable text")
        return wish
