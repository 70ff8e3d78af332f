"""Precis: a KV-cache store for LLM serving that compresses what it keeps.

::

    import precis
    cache = precis.open("cache-dir")              # or precis.connect("127.0.0.1:7470")
    model = cache.register_model(precis.ModelSpec(...))
    put = cache.begin_put(model, tokens, recipe="global_kvdiff", keep=0.3)
    for i, (keys, values) in enumerate(layers):   # [num_kv_heads, n, head_dim], NumPy or PyTorch
        put.layer(i, keys, values)
    segment = put.commit(durability="wal")
    match = cache.lookup(model, tokens)
    prefix = cache.get(match, keep=0.2)           # prefix.layers[l].heads[h].keys

* :func:`open` runs the service inside this process, :func:`connect` uses a running precisd.
* :class:`Cache` has every call: register_model, begin_put, lookup, get, session, trim and more.
* :class:`Put` is a put in progress, :class:`Segment` what it has stored.
* :class:`Match` is what a lookup has found, :class:`Prefix` the entries that a get brings.
* :class:`Session` is a name for the end of a conversation.
* :func:`entries`, :func:`bytes_`, :func:`byte_share` and :func:`loss` are budgets in other units
  than a share of the entries.
* :class:`Error` is the class of every error.

``help(precis.Cache)`` has the calls. ``precis.hf`` does all of it for Hugging Face Transformers.
"""

from . import errors
from ._core import canonical_recipe, preset_names
from .arrays import BFloat16Array as BFloat16Array
from .arrays import Float8Array as Float8Array
from .budget import ALL, Budget, Keep, byte_share, bytes_, entries, loss, ratio
from .cache import Cache, connect, open
from .calls import Calls
from .compress import Kept, compress
from .errors import (
    Canceled,
    Conflict,
    Corruption,
    Error,
    Internal,
    InvalidArgument,
    Moved,
    NotFound,
    OutOfSpace,
    PermissionDenied,
    Rejected,
    TimedOut,
    Unavailable,
    Unsupported,
    VersionMismatch,
)
from .model import Model, ModelSpec
from .pages import Pages
from .prefix import Head, Layer, Prefix
from .put import Put
from .rows import (
    BudgetRow,
    Budgets,
    Match,
    MatchLink,
    ModelRow,
    NextPut,
    ProfileRow,
    Segment,
    ServerStatus,
    Trimmed,
)
from .session import Session
from .solver import head_weights, prune_curves
from .tenants import IssuedToken, TenantRow, Tenants

__version__ = "0.1.0"

__all__ = [
    "ALL",
    "Budget",
    "BudgetRow",
    "Budgets",
    "Cache",
    "Calls",
    "Canceled",
    "Conflict",
    "Corruption",
    "Error",
    "Head",
    "Internal",
    "InvalidArgument",
    "IssuedToken",
    "Keep",
    "Kept",
    "Layer",
    "Match",
    "MatchLink",
    "Model",
    "ModelRow",
    "ModelSpec",
    "Moved",
    "NextPut",
    "NotFound",
    "OutOfSpace",
    "Pages",
    "PermissionDenied",
    "Prefix",
    "ProfileRow",
    "Put",
    "Rejected",
    "Segment",
    "ServerStatus",
    "Session",
    "TenantRow",
    "Tenants",
    "TimedOut",
    "Trimmed",
    "Unavailable",
    "Unsupported",
    "VersionMismatch",
    "byte_share",
    "bytes_",
    "canonical_recipe",
    "compress",
    "connect",
    "entries",
    "errors",
    "head_weights",
    "loss",
    "open",
    "preset_names",
    "prune_curves",
    "ratio",
]
