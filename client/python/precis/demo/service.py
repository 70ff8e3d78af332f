"""A precisd that this process can start, stop, kill and start again over the same data."""

from __future__ import annotations

import queue
import shutil
import signal
import subprocess
import threading
from pathlib import Path

_READY = "precisd ready address="
_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 60


def find_precisd() -> str:
    """The precisd on the PATH.

    Raises:
        FileNotFoundError: no precisd is on the PATH.
    """
    found = shutil.which("precisd")
    if found is None:
        raise FileNotFoundError("precisd is not on the PATH; name it with --precisd PATH")
    return found


class Precisd:
    """One data folder and at most one precisd that serves it, by default on a free port."""

    def __init__(self, program: str, data: Path, *flags: str, listen: str = "127.0.0.1:0") -> None:
        self._command = [program, "--data", str(data), "--listen", listen, *flags]
        self._log = data.parent / f"{data.name}.log"
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> Precisd:
        """Returns once the service accepts connections.

        Raises:
            RuntimeError: precisd ended, or printed nothing for a minute; with the end of its log.
        """
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True
            )
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        output = self._process.stdout
        threading.Thread(target=lambda: lines.put(output.readline()), daemon=True).start()
        try:
            line = lines.get(timeout=_START_SECONDS_MAX)
        except queue.Empty:
            line = ""
        if not line.startswith(_READY):
            self.kill()
            raise RuntimeError(f"precisd did not start: {self.log_end() or 'it said nothing'}")
        self.address = line.removeprefix(_READY).strip()
        return self

    @property
    def pid(self) -> int:
        """The pid of the running process."""
        return self._running().pid

    def stop(self) -> None:
        """Asks precisd to end, and waits.

        Raises:
            RuntimeError: it did not end, or not with status 0.
        """
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError("precisd did not stop when asked to") from None
        self._clear_process()
        if status != 0:
            raise RuntimeError(f"precisd ended with status {status}: {self.log_end()}")

    def kill(self) -> None:
        """Ends precisd at once, as a crash would; no effect if none runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._clear_process()

    def log(self) -> str:
        """Precisd's log."""
        return self._log.read_text(errors="replace")

    def log_end(self) -> str:
        """The last lines of precisd's log."""
        return "\n".join(self.log().splitlines()[-10:])

    def __enter__(self) -> Precisd:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.kill()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("precisd is not running")
        return self._process

    def _clear_process(self) -> None:
        self._running().stdout.close()
        self._process = None
