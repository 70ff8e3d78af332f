"""Reads files that the user names, up to a limit, because a file such as /dev/zero never ends."""

import os

# The same values as in schema/include/precis/limits.h.
PROFILE_BYTES_MAX = 8 << 20
TEXT_FILE_BYTES_MAX = 64 << 20


def read_text(path: str | os.PathLike[str], bytes_max: int) -> str:
    """The whole content of a UTF-8 text file.

    Raises:
        OSError, ValueError: naming the file; ValueError if it has more than `bytes_max` bytes or is
            not UTF-8.
    """
    with open(path, "rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise ValueError(
            f"{os.fspath(path)} has more than {bytes_max} bytes, the most that are read here; "
            "is it the right file?"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{os.fspath(path)}: not UTF-8 text ({error.reason} at {error.start})"
        ) from None
