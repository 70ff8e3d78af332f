"""./dev fuzz: runs every target under libFuzzer for a while; shows its progress and findings.

Inputs that reach new code stay in the corpus, from which the next run starts. The program
fuzz_seeds lists the targets.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

# "#4096  pulse  cov: 312 ft: 901 corp: 44/3188b lim: 110 exec/s: 2048 rss: 61Mb"
PROGRESS = re.compile(r"^#(\d+)\s+\S+\s+cov: (\d+) ft: \d+ corp: (\d+)/\S+ .*exec/s: (\d+)")
FINAL_EXECUTIONS = re.compile(r"^stat::number_of_executed_units:\s+(\d+)")
WRITTEN = re.compile(r"Test unit written to (\S+)")
INPUT_SECONDS_MAX = 20  # an input that takes longer is a finding
MEMORY_MB_MAX = 2048  # an input that takes more memory is a finding
INTERRUPTED = 72  # libFuzzer's exit status after an interrupt
REPORT_SECONDS = 30  # between two progress lines of a target, without a terminal


@dataclass
class Target:
    """The run of one target and its progress."""

    name: str
    log: Path
    executions: int = 0
    coverage: int = 0
    corpus: int = 0
    rate: int = 0
    process: subprocess.Popen[str] | None = None
    reader: threading.Thread | None = None
    began: float = 0
    inputs: list[str] = field(default_factory=list)  # failing inputs

    def read(self, line: str) -> None:
        """Takes the figures from a line of libFuzzer's output."""
        if found := PROGRESS.match(line):
            self.executions, self.coverage, self.corpus, self.rate = map(int, found.groups())
        elif found := FINAL_EXECUTIONS.match(line):
            self.executions = int(found[1])
        elif found := WRITTEN.search(line):
            self.inputs.append(found[1])

    def follow(self) -> None:
        """Reads the process's output to its end."""
        with self.log.open("w", encoding="utf-8") as log:
            for line in self.process.stderr:
                log.write(line)
                self.read(line)

    def result(self) -> str:
        """The run's state, in a word."""
        if self.process is None:
            return "not run"
        status = self.process.poll()
        if status is None:
            return "running"
        if status < 0 or status == INTERRUPTED:
            return "stopped"
        return "clean" if status == 0 else "FAILED"

    def line(self) -> str:
        """The target's figures, for people."""
        return (
            f"{self.name:26}{self.executions:>13,} executions{self.rate:>9,}/s"
            f"{self.coverage:>8,} edges{self.corpus:>7,} inputs  {self.result()}"
        )


class Run:
    """Runs the targets, a bounded number at a time."""

    def __init__(self, options: argparse.Namespace, names: list[str]) -> None:
        self.options = options
        self.work = options.build
        self.program = options.build / "bin" / "precis_fuzz"
        self.targets = [Target(name, self.folder("log") / f"{name}.log") for name in names]
        self.shown = 0  # lines on the terminal to overwrite

    def folder(self, *parts: str | Path) -> Path:
        """A folder below the build folder; creates it if it is missing."""
        path = self.work.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def start(self, target: Target) -> None:
        """Starts libFuzzer on a target."""
        crashes = self.folder("crashes", target.name)
        corpus = self.folder(self.options.corpus.absolute(), target.name)
        command = [
            str(self.program),
            f"--target={target.name}",
            f"-max_total_time={self.options.seconds}",
            f"-timeout={INPUT_SECONDS_MAX}",
            f"-rss_limit_mb={MEMORY_MB_MAX}",
            f"-artifact_prefix={crashes}/",
            "-print_final_stats=1",
            str(corpus),
            str(self.work / "seeds" / target.name),
        ]
        target.began = time.monotonic()
        target.process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        target.reader = threading.Thread(target=target.follow)
        target.reader.start()

    def show(self, running: list[Target]) -> None:
        """Shows the running targets' lines, in place."""
        sys.stdout.write(f"\x1b[{self.shown}F\x1b[J" if self.shown else "")
        for target in running:
            print(target.line())
        self.shown = len(running)
        sys.stdout.flush()

    def run(self) -> None:
        """Runs all targets; a target that fails does not end the others."""
        live = sys.stdout.isatty()
        waiting, running = list(self.targets), []
        reported = time.monotonic()
        try:
            while waiting or running:
                while waiting and len(running) < self.options.jobs:
                    running.append(waiting.pop(0))
                    self.start(running[-1])
                time.sleep(0.2)
                done = [target for target in running if target.process.poll() is not None]
                running = [target for target in running if target not in done]
                if live:
                    self.show([])
                for target in done:
                    target.reader.join()
                    print(target.line(), flush=True)
                if live:
                    self.show(running)
                elif time.monotonic() - reported > REPORT_SECONDS:
                    reported = time.monotonic()
                    for target in running:
                        print(target.line(), flush=True)
        finally:
            for target in running:
                target.process.terminate()
                target.reader.join()

    def conclude(self) -> int:
        """Prints the table, the failures and how to replay them. Returns the exit status."""
        print(f"\n{'target':26}{'executions':>13}{'edges':>8}{'inputs':>8}  result")
        for target in self.targets:
            print(
                f"{target.name:26}{target.executions:>13,}{target.coverage:>8,}"
                f"{target.corpus:>8,}  {target.result()}"
            )
        failed = [target for target in self.targets if target.result() == "FAILED"]
        for target in failed:
            print(f"\n{target.name} failed; all that it said is in {shown(target.log)}")
            for path in target.inputs:
                print(f"  input:  {shown(Path(path))}")
                print(f"  replay: {shown(self.program)} --target={target.name} {shown(Path(path))}")
            if not target.inputs:
                print("  " + "\n  ".join(target.log.read_text("utf-8").splitlines()[-15:]))
        clean = sum(target.result() == "clean" for target in self.targets)
        print(f"\n{clean} of {len(self.targets)} targets clean")
        return 0 if clean == len(self.targets) else 1


def shown(path: Path) -> str:
    """A path as a person would type it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def parser() -> argparse.ArgumentParser:
    """The options; ./dev fuzz --help explains them."""
    made = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    made.add_argument("targets", nargs="*", metavar="TARGET", help="those alone")
    length = made.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=int, metavar="N", help="how long each runs")
    length.add_argument("--minutes", type=int, metavar="N", help="[10]")
    made.add_argument("--jobs", type=int, default=os.cpu_count(), help="at a time [every core]")
    made.add_argument("--list", action="store_true", help="names the targets and ends")
    made.add_argument("--corpus", type=Path, metavar="DIR", help="[build/fuzz/corpus]")
    made.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    return made


def main() -> int:
    """Runs the targets that the command line asks for."""
    options = parser().parse_args()
    options.build = options.build.absolute()
    options.seconds = options.seconds or 60 * (options.minutes or 10)
    options.corpus = options.corpus or options.build / "corpus"
    seeds = [str(options.build / "bin" / "fuzz_seeds")]
    names = subprocess.run(seeds, check=True, capture_output=True, text=True).stdout.split()
    if unknown := [name for name in options.targets if name not in names]:
        print(f"dev fuzz: no target is called {unknown[0]}; there are", *names, file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(names))
        return 0
    subprocess.run([*seeds, str(options.build / "seeds")], check=True, stdout=subprocess.DEVNULL)
    run = Run(options, options.targets or names)
    print(f"{len(run.targets)} targets, {options.seconds} s each, {options.jobs} at a time")
    try:
        run.run()
    except KeyboardInterrupt:
        print("\ninterrupted")
    return run.conclude()


if __name__ == "__main__":
    sys.exit(main())
