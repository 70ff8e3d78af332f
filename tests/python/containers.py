"""Runs the programs of containers without containers: folders of the test replace their folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from precis.demo.service import find_precisd


class Folders:
    """The folders of one container, in a folder of the test."""

    def __init__(self, folder: Path, *paths: str) -> None:
        self._here = {path: folder / path.strip("/").replace("/", "-") for path in paths}
        for here in self._here.values():
            here.mkdir(parents=True)

    def here(self, text: str) -> str:
        """The text with the test's folders instead of the container's."""
        for path in sorted(self._here, key=len, reverse=True):
            text = text.replace(path, str(self._here[path]))
        return text

    def write(self, path: str, text: str) -> Path:
        """Writes a file; its text gets the test's folders instead of the container's, too."""
        file = Path(self.here(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.here(text))
        file.chmod(0o440)
        return file

    def read(self, path: str) -> str:
        """The text of a file."""
        return Path(self.here(path)).read_text()

    def command(self, words: list[str]) -> list[str]:
        """The container's command, with the test's folders."""
        return [self.here(word) for word in words]

    def check(self, words: list[str], tmp_path: Path, **environment: str) -> None:
        """Runs the container's command with a precisd that only checks its settings.

        The precisd must accept the settings, and report only that they are valid.
        """
        checking = tmp_path / "checking/precisd"
        checking.parent.mkdir(exist_ok=True)
        checking.write_text(f'#!/bin/sh\nexec "{find_precisd()}" --check "$@"\n')
        checking.chmod(0o755)
        path = f"{checking.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            self.command(words),
            env={**os.environ, "PATH": path, **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("precisd: the configuration is valid"), done.stdout
        assert not done.stderr, done.stderr
