"""What the demo and its workers say to each other: a job in a file, events as lines of JSON."""

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
    """What is asked, and the answer that is right."""

    word: str
    text: str
    answer: str


@dataclass(frozen=True)
class Job:
    """All a worker is told. Of the document it is told the token ids alone.

    Attributes:
        address: of precisd.
        tokens: of the document.
        questions: the decode worker asks them.
        recipe, keep: what the prefill worker stores.
        reads: the budgets at which the decode worker reads it.
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
        """From the file that `run` wrote."""
        fields = json.loads(Path(path).read_text())
        fields["questions"] = [Question(**question) for question in fields["questions"]]
        return Job(**fields)


def tell(event: str, **values: Any) -> None:
    """Tells the demo, from within a worker."""
    print(json.dumps({"event": event, **values}), flush=True)


def run(module: str, job: Job, scratch: Path, listen: Callable[[Event], None]) -> None:
    """Runs a worker as a process of its own and hands over its events as they come.

    Raises:
        RuntimeError: it failed; with the reason it gave.
    """
    path = scratch / f"{module.rpartition('.')[2]}.json"
    path.write_text(json.dumps(asdict(job)))
    # Threads that spin while they wait would take the service's share of a small machine.
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
