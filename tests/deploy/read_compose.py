"""Checks the form of a compose file and prints it as JSON, as Compose would read it.

    read_compose.py FILE [NAME=VALUE...]

The names are the variables of its environment. Exits with 1 and the reason on stderr if the file is
not of the form, or needs a variable that is not given. Runs in the environment of ./dev setup
--deploy.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import compose_spec
import yaml

# $$, ${NAME} and ${NAME:?why}; the file has no other form.
_VARIABLE = re.compile(r"\$(?:(?P<sign>\$)|\{(?P<name>\w+)(?::\?(?P<why>[^}]*))?\}|(?P<wrong>.|$))")


def filled(part: object, variables: dict[str, str]) -> object:
    """The part of the file with the values of the variables."""

    def value(found: re.Match[str]) -> str:
        if found["wrong"] is not None:
            raise ValueError(f"unknown form of a variable: {found.string[found.start() :][:20]}")
        if found["sign"]:
            return "$"
        if not variables.get(found["name"]):
            raise ValueError(f"{found['name']}: {found['why'] or 'is missing'}")
        return variables[found["name"]]

    if isinstance(part, str):
        return _VARIABLE.sub(value, part)
    if isinstance(part, list):
        return [filled(item, variables) for item in part]
    if isinstance(part, dict):
        return {name: filled(item, variables) for name, item in part.items()}
    return part


def check_names(file: dict) -> None:
    """Raises ValueError if a service names a volume or a service that the file does not have."""
    for name, service in file["services"].items():
        mounted = [volume.split(":")[0] for volume in service.get("volumes", ())]
        volumes = {source for source in mounted if source[0] not in "./"}  # the others are folders
        missing = volumes - set(file["volumes"])
        missing |= set(service.get("depends_on", ())) - set(file["services"])
        if missing:
            raise ValueError(f"{name} names {missing}, which the file does not have")


def main(path: str, *variables: str) -> None:
    file = yaml.safe_load(Path(path).read_text())
    file = filled(file, dict(variable.split("=", 1) for variable in variables))
    compose_spec.PyCompose.from_json(json.dumps(file)).validate()
    check_names(file)
    print(json.dumps(file))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ValueError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
