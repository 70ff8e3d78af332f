"""The exceptions of precis: one class per status code, all of them :class:`Error`.

Each is also the built-in exception that a Python program would expect. The message says what
failed, with the field, the values and the limit.
"""

from __future__ import annotations


class Error(Exception):
    """Any error that a call of precis reports."""

    code = "internal"

    def __str__(self) -> str:  # KeyError would print its repr
        return str(self.args[0]) if self.args else ""


class NotFound(Error, KeyError):
    """Nothing is stored under that name."""

    code = "not_found"


class InvalidArgument(Error, ValueError):
    """The request is wrong and must be changed."""

    code = "invalid_argument"


class PermissionDenied(Error, PermissionError):
    """The credentials do not allow access to this object.

    Attributes:
        retry_after: not 0 if the token was not checked, because wrong tokens came from this
            address: seconds after which it will be.
    """

    code = "permission_denied"
    retry_after = 0.0


class Rejected(Error):
    """The service is overloaded: wait and try again.

    Attributes:
        retry_after: seconds after which a retry may succeed; 0 if waiting alone does not help.
    """

    code = "rejected"
    retry_after = 0.0


class OutOfSpace(Error):
    """A configured capacity is used up."""

    code = "out_of_space"


class TimedOut(Error, TimeoutError):
    """The deadline passed; whether the call took effect is unknown."""

    code = "timed_out"


class Unavailable(Error, ConnectionError):
    """The service cannot be reached, or a put in progress was lost with it: put again."""

    code = "unavailable"


class Corruption(Error):
    """Bytes from disk or the network failed their check."""

    code = "corruption"


class VersionMismatch(Error):
    """The two sides speak different versions."""

    code = "version_mismatch"


class Unsupported(Error, NotImplementedError):
    """Valid, but not supported by this build or on this machine."""

    code = "unsupported"


class Canceled(Error):
    """The caller canceled the call."""

    code = "canceled"


class Internal(Error):
    """A bug in precis."""

    code = "internal"


class Conflict(InvalidArgument):
    """Stored objects prevent it, for example the children of a segment: change those first."""

    code = "conflict"


class Moved(Unavailable):
    """In a cluster: the prompt's shard kept moving between nodes until the deadline."""

    code = "moved"


_CLASSES = {
    cls.code: cls
    for cls in (
        NotFound,
        InvalidArgument,
        PermissionDenied,
        Rejected,
        OutOfSpace,
        TimedOut,
        Unavailable,
        Corruption,
        VersionMismatch,
        Unsupported,
        Canceled,
        Internal,
        Conflict,
        Moved,
    )
}


def error_of(code: str, message: str, retry_after_ms: int = 0) -> Error:
    """The exception for a status code of the C++ library."""
    error = _CLASSES.get(code, Internal)(message)
    if isinstance(error, (Rejected, PermissionDenied)):
        error.retry_after = retry_after_ms / 1000
    return error
