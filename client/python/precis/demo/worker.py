"""The messages between the demo and its workers: a job in a file, events as lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A question and its right answer."""

    word: str
    text: str
    answer: str


@dataclass(frozen=True)
class Job:
    """The whole input of a worker; the document is only its token ids.

    Attributes:
        address: the address of precisd.
        tokens: the document.
        questions: the questions that the decode worker asks.
        recipe, keep: for the prefill worker's put.
        reads: the budgets at which the decode worker reads.
        session: the conversation's name.
    """

    address: str
    tokens: list[int]
    questions: list[Question]
    recipe: str
    keep: float
    reads: list[float]
    session: str

    @staticmethod
    def load(path: str) -> Job:
        """Reads the file that `run` wrote."""
        fields = json.loads(Path(path).read_text())
        fields["questions"] = [Question(**question) for question in fields["questions"]]
        return Job(**fields)


def tell(event: str, **values: Any) -> None:
    """Sends an event from a worker to the demo."""
    print(json.dumps({"event": event, **values}), flush=True)


def run(module: str, job: Job, scratch: Path, listen: Callable[[Event], None]) -> None:
    """Runs a worker in its own process and passes its events on as they come.

    Raises:
        RuntimeError: the worker failed; with its reason.
    """
    path = scratch / f"{module.rpartition('.')[2]}.json"
    path.write_text(json.dumps(asdict(job)))
    # Threads that spin while they wait would take processor time from the service.
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(path)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
        try:
            for event in _events(process):
                listen(event)
            status = process.wait()
        finally:
            process.kill()
            process.wait()
        if status != 0:
            errors.seek(0)
            lines = [line for line in errors.read().splitlines() if line.strip()]
            reason = lines[-1] if lines else "it gave no reason"
            raise RuntimeError(f"{module} ended with status {status}: {reason}")


def _events(process: subprocess.Popen[str]) -> Iterator[Event]:
    for line in process.stdout:
        yield json.loads(line)
