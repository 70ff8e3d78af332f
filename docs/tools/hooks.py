"""MkDocs hooks: pages from outside docs/, the reference that is made from the code, source files.

mkdocs.yml names this file. Nothing is written into the tree: generated pages are handed to MkDocs
as text.
"""

from __future__ import annotations

import re
from pathlib import Path

import cli_reference
import configuration_reference
import cpp_reference
import extension_reference
import links
import metrics_reference
import python_reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"  # its programs are asked for their --help

_LEXERS = {
    **dict.fromkeys((".h", ".cc", ".cu", ".cuh", ".def"), "cpp"),
    **{".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json", ".cmake": "cmake"},
    **{".sh": "bash", "dev": "bash", "Containerfile": "docker", ".service": "ini"},
    "CMakeLists.txt": "cmake",
}


# Files that the client's headers include: the types that it takes and gives.
_TYPES = [
    *(f"schema/include/precis/{name}.h" for name in ("status", "types", "view", "messages")),
    "schema/control.capnp",
]

# Patterns of content that a browser would fetch from another host: scripts, styles, images, and
# the script that Material loads for diagrams of this class.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^>]*>"
    r"|<link\b[^>]*\bhref=[\"']?(?:https?:)?//[^>]*>|class=[\"']?mermaid\b"
)


def _reference() -> dict[str, str]:
    """The generated pages, by their place on the site."""
    headers = sorted((ROOT / "client/include/precis").glob("*.h"))
    types = "".join(f"- [{path}](../{links.source_page(path)})\n" for path in _TYPES)
    return {
        **{f"reference/{name}.md": text for name, text in python_reference.pages(ROOT).items()},
        "reference/cli.md": cli_reference.page(BUILD / "bin"),
        "reference/configuration.md": configuration_reference.page(
            (ROOT / "deploy/precisd.toml").read_text()
        ),
        "reference/cpp.md": cpp_reference.page({h.name: h.read_text() for h in headers})
        + f"\n## Types\n\nThe types that these headers name stand in\n\n{types}",
        "reference/metrics.md": metrics_reference.page(ROOT),
        "reference/extension.md": extension_reference.page(
            extension_reference.load(BUILD / "python/precis")
        ),
    }


def _source(path: str) -> str:
    """The page of a source file, or of a folder: what lies in it."""
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    if (ROOT / path).is_dir():
        names = sorted(p.name + "/" * p.is_dir() for p in (ROOT / path).iterdir())
        return head + "\n".join(f"- `{name}`" for name in names if name[0] not in "._")
    text = (ROOT / path).read_text()
    lexer = _LEXERS.get(Path(path).suffix) or _LEXERS.get(Path(path).name, "text")
    return f"{head}`````{lexer}\n{text.rstrip()}\n`````\n"


def _in_repository(file: File) -> str | None:
    """The path of a page's source in the repository; None of a generated page."""
    if file.generated_by is None:
        return links.DOCS + file.src_uri
    return next((path for path, site in links.MOVED.items() if site == file.src_uri), None)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that do not lie in docs/."""
    for path, site in links.MOVED.items():
        files.append(File.generated(config, site, abs_src_path=str(ROOT / path)))
    for site, text in _reference().items():
        files.append(File.generated(config, site, content=text))
    shown = set(_TYPES)
    for file in files.documentation_pages():
        page = _in_repository(file)
        for target in links.targets(file.content_string) if page else ():
            path = links.in_repository(page, target)
            if path and links.on_site(path, ROOT) == links.source_page(path):
                shown.add(path)
    for path in sorted(shown):
        files.append(File.generated(config, links.source_page(path), content=_source(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links to what stands elsewhere on the site."""
    path = _in_repository(page.file)
    if path is None:
        return markdown
    return links.rewritten(
        markdown, lambda target: links.for_site(target, path, page.file.src_uri, ROOT)
    )


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuses a page that asks something of the network."""
    if fetched := _FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} would fetch from another host: {fetched[0]}")
    return output
