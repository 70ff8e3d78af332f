"""Reports arguments of a wrong type by the name that the caller gave them."""

from __future__ import annotations

import collections.abc
import inspect
import reprlib
import types
from collections.abc import Callable
from functools import wraps
from numbers import Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import InvalidArgument

_Named = TypeVar("_Named", bound=Callable[..., Any])


def names_arguments(of: _Named) -> _Named:
    """Decorates a function or a class's public methods: errors name the argument of a wrong type.

    A wrong argument usually fails in the extension module, which knows neither its name nor the
    needed type; the signature knows both. The signature is read only after a call has failed: a
    successful call costs nothing, and any value that works is accepted.
    """
    if inspect.isclass(of):
        for name, member in list(vars(of).items()):
            if inspect.isfunction(member) and not name.startswith("_"):
                setattr(of, name, names_arguments(member))
        return of

    @wraps(of)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return of(*args, **kwargs)
        except (TypeError, AttributeError) as error:
            refuse_wrong(of, args, kwargs, error)
            raise

    return call


def refuse_wrong(
    of: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> None:
    """Raises InvalidArgument for the first argument that does not fit the signature of `of`.

    `error` is the error of the call. It is kept as the cause, because this argument may not be the
    reason why the call failed.
    """
    try:
        given = inspect.signature(of).bind(*args, **kwargs).arguments
    except TypeError:  # a missing or unknown argument, which Python's own error names
        return
    hints = get_type_hints(of)
    for name, value in given.items():
        if name in hints and not _fits(value, hints[name]):
            needed, kind = of.__annotations__[name], type(value).__name__
            raise InvalidArgument(
                f"{name}: must be {needed}, is {reprlib.repr(value)} ({kind})"
            ) from error


def _fits(value: Any, hint: Any) -> bool:
    """Whether the value is of the hinted type; elements of a sequence are not checked."""
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin is collections.abc.Sequence and not isinstance(value, str):
        return hasattr(value, "__getitem__") or hasattr(value, "__iter__")  # arrays too
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if hint in (int, float):
        wanted = hasattr(value, "__index__") if hint is int else isinstance(value, Real)
        return wanted and not isinstance(value, bool)
    return isinstance(value, origin or hint)
