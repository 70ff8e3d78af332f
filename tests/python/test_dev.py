"""How ./dev makes and runs the Python environment; scripts replace Python here."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Replaces the machine's Python: it never finishes an environment, and reports its pid.
ENDLESS = """#!/bin/bash
[ "$*" != --version ] || exit 0
echo $$ >&"$STARTED"
exec sleep 600
"""

# This one makes environments whose programs do nothing, and records its arguments.
MAKING = """#!/bin/bash
[ "$*" != --version ] || exit 0
folder=${!#}
echo "${@:1:$#-1}" >>"$MADE"
mkdir -p "$folder/bin"
for program in python uv; do
  printf '#!/bin/sh\\n' >"$folder/bin/$program" && chmod +x "$folder/bin/$program"
done
"""


def put_script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of a checkout that ./dev setup reads, without those that it makes."""
    for name in (
        "dev",
        "deploy/debian-packages.txt",
        "client/python/requirements-dev.txt",
        "client/python/requirements-models.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def start_setup(checkout: Path, python: str, **more) -> subprocess.Popen[str]:
    put_script(checkout / "tools" / "python3", python)
    environment = {"PATH": f"{checkout}/tools:{os.environ['PATH']}", **more.pop("env")}
    return subprocess.Popen(
        ["./dev", "setup", "--no-packages"],
        cwd=checkout,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background ignores the signal, and a child would
        # inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **more,
    )


@pytest.fixture
def under_way(checkout: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """./dev setup in the middle of a step, and the process of the step."""
    says, started = os.pipe()
    dev = start_setup(checkout, ENDLESS, env={"STARTED": str(started)}, pass_fds=[started])
    os.close(started)
    with os.fdopen(says) as said, dev:
        line = said.readline()
        assert line, dev.stdout.read()
        yield dev, int(line)
        for kill, who in ((os.kill, int(line)), (os.killpg, dev.pid)):
            with contextlib.suppress(ProcessLookupError):
                kill(who, signal.SIGKILL)


@pytest.mark.parametrize(
    ("number", "to_group"),
    [
        pytest.param(signal.SIGINT, True, id="ctrl-c"),
        pytest.param(signal.SIGINT, False, id="sigint"),
        pytest.param(signal.SIGTERM, False, id="sigterm"),
    ],
)
def test_nothing_goes_on_behind_a_step_that_was_interrupted(under_way, number, to_group):
    dev, step = under_way
    (os.killpg if to_group else os.kill)(dev.pid, number)
    assert dev.wait(timeout=60) == -number  # which a shell reports as 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(step, 0)


@pytest.mark.parametrize("before", ["nothing", "half-made", "half-made elsewhere", "whole"])
def test_a_half_made_environment_is_made_anew(checkout, before):
    environment = checkout / ".venv"
    if before == "half-made elsewhere":
        (checkout / "elsewhere").mkdir()
        environment.symlink_to(checkout / "elsewhere")
    if before != "nothing":
        has_pip = before == "whole"
        put_script(environment / "bin/python", f"#!/bin/sh\nexit {0 if has_pip else 1}\n")
        put_script(environment / "bin/uv", "#!/bin/sh\n")
    made = checkout / "made"
    dev = start_setup(checkout, MAKING, env={"MADE": str(made)})
    said, _ = dev.communicate(timeout=60)
    assert dev.returncode == 0, said
    # An environment elsewhere may contain other files, and is not cleared.
    asked = "-m venv\n" if before == "half-made elsewhere" else "-m venv --clear\n"
    assert (made.read_text() if made.exists() else "") == ("" if before == "whole" else asked)
    assert (environment / "fingerprint").read_text()


def test_python_runs_without_a_build_if_asked_to(checkout):
    put_script(checkout / ".venv/bin/python", '#!/bin/sh\necho "$PYTHONPATH $*"\n')
    command = ["./dev", "python", "--no-build", "-m", "pytest"]
    said = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
    assert said.stdout.startswith(f"{checkout}/build/release/python")
    assert said.stdout.endswith(" -m pytest\n")


@pytest.mark.parametrize(("output", "is_there"), [("all.hxx.gch", False), ("all.cc.o", True)])
def test_an_old_precompiled_header_is_gone_before_the_new_one_is_compiled(
    tmp_path, output, is_there
):
    old = tmp_path / output
    old.write_text("old")
    compiler = tmp_path / "compiler"
    put_script(compiler, f'#!/bin/sh\ntest -e "{old}" && echo there\nexit 0\n')
    launched = ["sh", ROOT / "cmake/compile_headers.sh", compiler, "-x", "c++", "-o", old]
    said = subprocess.run(launched, stdout=subprocess.PIPE, text=True, check=True)
    assert (said.stdout == "there\n") == is_there


@pytest.mark.skipif(shutil.which("ccache") is None, reason="needs ccache")
def test_headers_are_compiled_anew_if_only_a_comment_has_changed(tmp_path):
    header, unit = tmp_path / "header.h", tmp_path / "unit.cc"
    headers, source = tmp_path / "all.hxx", tmp_path / "all.hxx.cc"
    headers.write_text('#pragma GCC system_header\n#include "header.h"\n')
    source.write_text("")
    env = {
        **os.environ,
        "CCACHE_DIR": str(tmp_path / "cache"),
        "CCACHE_CONFIGPATH": os.devnull,
        "CCACHE_SLOPPINESS": "pch_defines,time_macros",
    }
    compiler = ["ccache", "g++", "-fpch-preprocess"]
    launch = ["sh", str(ROOT / "cmake/compile_headers.sh"), *compiler]
    made = ["-x", "c++-header", "-include", headers, "-MD", "-MF", "all.d"]

    # A source that is compiled with headers of another content declares everything twice.
    def compile_all(number):
        header.write_text(f"#pragma once\n// Comment {number}.\nenum class Kind {{ kNone }};\n")
        unit.write_text(f'#include "header.h"\nint main() {{ return {number}; }}\n')
        for command in (
            [*launch, *made, "-o", "all.hxx.gch", "-c", source],
            [*compiler, "-include", headers, "-o", "unit.o", "-c", unit],
        ):
            subprocess.run(command, cwd=tmp_path, env=env, check=True, timeout=60)

    compile_all(1)
    compile_all(2)
