"""Files that a person names, read up to a limit: what never ends, such as /dev/zero, ends here."""

import os

# As schema/include/precis/limits.h has them.
PROFILE_BYTES_MAX = 8 << 20
TEXT_FILE_BYTES_MAX = 64 << 20


def read_text(path: str | os.PathLike[str], bytes_max: int) -> str:
    """All of a file of UTF-8 text.

    Raises:
        OSError, ValueError: naming the file; the second where it has more than `bytes_max` bytes or
            is not UTF-8.
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
