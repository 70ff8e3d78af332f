"""The extension module. Its parts are documented in the package that wraps them."""

from typing import Any

def __getattr__(name: str) -> Any: ...
