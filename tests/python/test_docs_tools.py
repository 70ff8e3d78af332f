"""The site's reference agrees with the code; links lead to the same files as in a checkout."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import precis

ROOT = Path(__file__).resolve().parents[2]
RDMA = "../deploy/rdma.md"
sys.path.insert(0, str(ROOT / "docs/tools"))

import cli_reference  # noqa: E402
import configuration_reference  # noqa: E402
import cpp_reference  # noqa: E402
import extension_reference  # noqa: E402
import links  # noqa: E402
import man_pages  # noqa: E402
import metrics_reference  # noqa: E402
import python_reference  # noqa: E402


@pytest.mark.parametrize(
    ("page", "on_site", "target", "wanted"),
    [
        ("README.md", "index.md", "docs/guides/vllm.md#gpus", "guides/vllm.md#gpus"),
        ("README.md", "index.md", "cachesvc/main.cc", "source/cachesvc/main.cc.md"),
        ("docs/security.md", "security.md", "../ARCHITECTURE.md", "architecture.md"),
        ("docs/security.md", "security.md", "promises.md", "promises.md"),
        ("docs/security.md", "security.md", "tools/hooks.py", "source/docs/tools/hooks.py.md"),
        ("docs/guides/vllm.md", "guides/vllm.md", "../../deploy", "../source/deploy.md"),
        ("docs/guides/vllm.md", "guides/vllm.md", "../results/vllm.json", "../results/vllm.json"),
        (
            "client/python/README.md",
            "client/python.md",
            "../../deploy/rdma.md",
            "../deploy/rdma.md",
        ),
        ("README.md", "index.md", "docs/none.md", "docs/none.md"),
        ("README.md", "index.md", "#here", "#here"),
        ("README.md", "index.md", "https://example.org/a", "https://example.org/a"),
    ],
)
def test_a_link_leads_to_the_same_file_on_the_site(page, on_site, target, wanted):
    assert links.for_site(target, page, on_site, ROOT) == wanted


def test_links_in_code_are_left_alone():
    page = "[a](b.md) `[c](d.md)`\n\n```py\nx[0](e.md)\n```\n\n[f\n](g.md)\n"
    assert links.targets(page) == ["b.md", "g.md"]
    assert links.rewritten(page, str.upper) == page.replace("b.md", "B.MD").replace("g.md", "G.MD")


def test_every_metric_of_the_service_is_on_the_page(tmp_path):
    with precis.open(tmp_path / "cache") as cache:
        told = set(cache.stats())
    of_service = metrics_reference.of_service(ROOT)
    assert {name for name, (kind, _) in of_service.items() if kind in ("counter", "gauge")} == told
    page = metrics_reference.page(ROOT)
    assert all(f"| `{name}` |" in page for name in told)
    assert "vllm:precis_hits_total" in page


def test_every_field_of_a_segments_row_is_in_the_specification():
    schema = (ROOT / "schema/catalog.capnp").read_text()
    struct = schema.split("struct SegmentRow")[1].split("\n}")[0]
    page = (ROOT / "docs/design/stored-form.md").read_text()
    table = page.split("The row of a segment:")[1].split("The other rows:")[0]
    columns = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    told = re.findall(r"`(\w+)`", "".join(columns))
    assert sorted(told) == sorted(re.findall(r"^  (\w+) @", struct, re.M))


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    for page in (ROOT / "docs").rglob("*.md"):
        assert f" {page.relative_to(ROOT / 'docs')}\n" in navigation, page


def test_every_setting_is_on_the_page_with_its_default():
    text = (ROOT / "deploy/precisd.toml").read_text()
    sections = configuration_reference.sections(text)
    found = {key.name: key for section in sections if not section.table for key in section.keys}
    of_tenant = {key.name for section in sections if section.table for key in section.keys}
    settings = tomllib.loads(text)
    for name, default in settings.items():
        assert tomllib.loads(f"x = {found[name].value}")["x"] == default
    quotas = {"max_disk_bytes", "max_memory_bytes", "max_puts", "max_requests_per_s"}
    assert of_tenant == {"name", "token", "token_file", "role", "weight", "salt", *quotas}
    assert all(key.text for key in found.values())
    page = configuration_reference.page(text)
    assert '| `max_message_bytes` | `"256MiB"` | each of: requests being received' in page


HEADER = """// What it is
// for:
//
//   use(it);
#pragma once

namespace precis {

class Hidden;

// A thing.
class Thing {
 public:
  Thing(Thing&&) noexcept;
  ~Thing();

  // Does it with `values` [num_heads]. kRejected when busy.
  Status run(std::span<const int> values,
             const Options& options = {}) const;
  int count() const { return count_; }  // how many
                                        // there are

  struct Part {
    std::optional<int> size{};  // in pages
    // Of both.
    int a = 0, b = 0;
  };

 private:
  int count_ = 0;
};

}  // namespace precis
"""


def test_a_header_becomes_prose_and_declarations():
    page = cpp_reference.page({"thing.h": HEADER})
    assert "## thing.h\n\nWhat it is for:\n\n```cpp\nuse(it);\n```\n\n### Thing\n\nA thing." in page
    run = "Status run(std::span<const int> values, const Options& options = {}) const;"
    assert f"#### run\n\n```cpp\n{run}\n```\n\nDoes it with `values` `[num_heads]`." in page
    assert "`kRejected` when busy" in page
    assert "```cpp\nint count() const;\n```\n\nhow many there are" in page
    assert "| `std::optional<int> size{}` | in pages |\n| `int a = 0, b = 0` | Of both. |" in page
    assert all(word not in page for word in ("Hidden", "noexcept", "count_", "~Thing"))


def test_every_call_of_the_client_is_on_the_page():
    headers = {p.name: p.read_text() for p in (ROOT / "client/include/precis").glob("*.h")}
    page = cpp_reference.page(headers)
    text = headers["client.h"] + headers["operator_client.h"]
    calls = re.findall(r"^  (?:virtual|static) .*?[ >](\w+)\(", text, re.MULTILINE)
    assert len(calls) > 30
    assert [name for name in calls if f"#### {name}\n" not in page] == []


@pytest.mark.skipif(not shutil.which("precisctl"), reason="precisctl is not built")
def test_every_subcommand_is_on_the_page():
    folder = Path(shutil.which("precisctl")).parent
    page = cli_reference.page(folder)
    for command in ("precisctl budget set", "precisctl prefix trim", "precisctl fsck", "precisd"):
        assert re.search(rf"^##+ {command}$", page, re.MULTILINE)
    assert "--dry-run" in page
    assert page.count("Exit codes: 0 done;") == 1
    assert str(folder) not in page


@pytest.mark.skipif(not shutil.which("precisctl"), reason="precisctl is not built")
def test_the_manual_pages_have_every_command_and_no_errors(tmp_path):
    man_pages.main(Path(shutil.which("precisctl")).parent, tmp_path)
    ctl = tmp_path / "man1/precisctl.1"
    text = ctl.read_text()
    for words in ("prefix ls", "prefix rm", "model rm", "top", "completion"):
        assert f".SS precisctl {words}\n" in text
    assert ".SH EXIT STATUS\n.TP\n.B 0\ndone\n" in text
    assert ".TP\n.B 6\nrefused: " in text
    assert "\n.B \\-\\-unused AGE\n" in text
    for page in (ctl, tmp_path / "man8/precisd.8"):
        assert str(tmp_path) not in page.read_text()
        if shutil.which("groff"):
            ran = subprocess.run(
                ["groff", "-man", "-ww", "-z", page], capture_output=True, text=True, timeout=60
            )
            assert (ran.returncode, ran.stderr) == (0, "")


def test_without_programs_the_page_says_so(tmp_path):
    assert "not built" in cli_reference.page(tmp_path)
    assert extension_reference.load(tmp_path) is None
    assert "not built" in extension_reference.page(None)


def test_every_name_of_the_package_is_on_its_page():
    page = python_reference.pages(ROOT)["python"]
    (listed,) = re.findall(r"members: (\[.*\])", page)
    names = ast.literal_eval(listed)
    elsewhere = {"canonical_recipe", "preset_names", "errors"}
    assert sorted(names) == sorted(set(precis.__all__) - elsewhere)
    assert names[:2] == ["open", "connect"]
    assert elsewhere - {"errors"} <= set(dir(precis._core))


def test_the_extension_module_is_on_the_page():
    page = extension_reference.page(precis._core)
    assert "preset_names() -> list[str]" in page
    assert "## Client\n" in page
