"""The programs of the READMEs and guides run unchanged, and the first pages stay short."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import precis
from precis.demo.service import Precisd, find_precisd

ROOT = Path(__file__).resolve().parents[2]


def programs() -> list[tuple[str, str]]:
    """Every block marked `python` that opens an embedded cache."""
    pages = [ROOT / "README.md", ROOT / "client/python/README.md", *(ROOT / "docs").rglob("*.md")]
    return [
        pytest.param(block, id=f"{page.relative_to(ROOT)}-{i}")
        for page in pages
        for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
        if "precis.open(" in block
    ]


def test_the_first_pages_are_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= 2500


@pytest.mark.parametrize("program", programs())
def test_the_program_of_the_page_runs(program, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_lines_for_transformers_run(tmp_path, tiny_llama, capsys):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = (ROOT / "client/python/README.md").read_text()
    (lines,) = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama, padding_side="left", pad_token="<unk>")
    given = {
        "torch": torch,
        "tokenizer": tokenizer,
        "hf_model": AutoModelForCausalLM.from_pretrained(tiny_llama).eval(),
        "tokens": tokenizer("the holder may copy the code " * 12).input_ids,
        "question_tokens": tokenizer("What may the holder copy?").input_ids,
        "first_question": "What may the holder copy?",
        "second_question": "What?",
    }
    with precis.open(tmp_path / "cache") as cache:
        exec(lines, given | {"cache": cache})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("page", ["README.md", "docs/guides/sessions.md"])
def test_the_program_for_transformers_runs(page, tmp_path, tiny_llama, capsys, monkeypatch):
    (program,) = re.findall(r"```py\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    name = '"HuggingFaceTB/SmolLM2-135M-Instruct"'
    assert program.count(name) == 1
    monkeypatch.chdir(tmp_path)
    exec(program.replace(name, repr(str(tiny_llama))), {})
    assert len(capsys.readouterr().out.split()) > 20


PYTHON = [sys.executable, str(ROOT / "client/examples/quickstart.py")]
NATIVE = pytest.param(
    ["quickstart"],
    marks=pytest.mark.skipif(not shutil.which("quickstart"), reason="quickstart is not built"),
)


def run(quickstart: list[str], where: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The quickstart, started in `folder`."""
    command = [*quickstart, where]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("quickstart", [PYTHON, NATIVE])
def test_the_quickstart_runs_and_without_a_service_says_what_to_start(quickstart, tmp_path):
    stored = run(quickstart, "cache-dir", tmp_path)
    assert stored.returncode == 0, stored.stderr
    assert stored.stdout.splitlines()[0] == "opened cache-dir in this process"
    assert stored.stdout.splitlines()[1].startswith("stored ")
    again = run(quickstart, "cache-dir", tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[1].startswith("was stored before: ")
    alone = run(quickstart, "127.0.0.1:1", tmp_path)
    assert alone.returncode == 1
    assert alone.stderr.splitlines()[-2:] == [
        "quickstart: unavailable: connect to 127.0.0.1:1: Connection refused",
        "to start one: precisd --data cache-dir --listen 127.0.0.1:1",
    ]
    assert "Traceback" not in alone.stderr


@pytest.mark.parametrize("quickstart", [PYTHON, NATIVE])
def test_a_refused_quickstart_names_what_it_reads_its_tenant_from(quickstart, tmp_path):
    config = tmp_path / "precisd.toml"
    config.write_text('[[tenant]]\nname = "red"\ntoken = "secret"\n')
    with Precisd(find_precisd(), tmp_path / "data", "--config", str(config)) as service:
        refused = run(quickstart, service.address, tmp_path)
    assert refused.returncode == 1
    assert "permission_denied" in refused.stderr
    assert "set PRECIS_TENANT and PRECIS_TOKEN" in refused.stderr.splitlines()[-1]
