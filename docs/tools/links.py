"""Where a file of the repository is found on the site, and the links of a page rewritten for it.

Pages link to each other and to source files as the repository has them, so that the links work in a
checkout. On the site a page may stand elsewhere, and a source file is a page that shows it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

DOCS = "docs/"  # MkDocs' own folder: its pages keep their places
TOOLS = "docs/tools/"  # but these are source files

# Files with another place on the site: path in the repository -> path on the site.
MOVED = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "client/python/README.md": "client/python.md",
    "client/engines/vllm/examples/README.md": "client/vllm-examples.md",
    "client/engines/sglang/README.md": "client/sglang.md",
    "deploy/rdma.md": "deploy/rdma.md",
    "deploy/running.md": "deploy/running.md",
    "schema/README.md": "schema/schema.md",
    "schema/RECORD_FORMAT.md": "schema/record-format.md",
    # The pages made of results/*.md have these names.
    "docs/results/gemma3.html": "results/gemma3-plots.html",
    "docs/results/smollm2.html": "results/smollm2-plots.html",
}

_FENCE = re.compile(r"^ *(```+|~~~+).*?\n.*?^ *\1 *$", re.MULTILINE | re.DOTALL)
# A code span, in which nothing is a link, or the target of an inline link.
_LINK = re.compile(
    r"(?P<span>`+)(?:(?!\n\n).)+?(?P=span)(?!`)|\]\((?P<target>[^)\s]+)\)", re.DOTALL
)


def rewritten(markdown: str, change: Callable[[str], str]) -> str:
    """The page with `change` applied to the target of each inline link outside of code."""

    def one(found: re.Match[str]) -> str:
        return f"]({change(found['target'])})" if found["target"] else found[0]

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(one, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(one, markdown[end:])])


def targets(markdown: str) -> list[str]:
    """The targets of all inline links outside of code."""
    found: list[str] = []
    rewritten(markdown, lambda target: found.append(target) or target)
    return found


def in_repository(page: str, target: str) -> str | None:
    """The path of what `page` links to, both from the root; None if it is no file of ours."""
    path = target.partition("#")[0]
    if not path or re.match(r"[a-z]+:|/", path):
        return None
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    return None if joined.startswith("..") else joined


def source_page(path: str) -> str:
    """The page that shows a source file or lists a folder."""
    return f"source/{path.removeprefix('.')}.md"


def on_site(path: str, root: Path) -> str | None:
    """The page or file of the site that stands for `path`; None if there is no such path."""
    for moved in (path, f"{path}/README.md"):
        if moved in MOVED:
            return MOVED[moved]
    if not (root / path).exists():
        return None
    if path.startswith(DOCS) and not path.startswith(TOOLS) and (root / path).is_file():
        return path.removeprefix(DOCS)
    return source_page(path)


def for_site(target: str, page: str, page_on_site: str, root: Path) -> str:
    """The link of a page as the site needs it. A link to nothing stays, for MkDocs to refuse."""
    path = in_repository(page, target)
    wanted = on_site(path, root) if path else None
    if wanted is None:
        return target
    anchor = target.partition("#")[1:]
    return posixpath.relpath(wanted, posixpath.dirname(page_on_site) or ".") + "".join(anchor)
