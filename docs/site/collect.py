"""Copy the site's pages into .site-pages/, from which MkDocs or a successor builds the site.

The README is the first page. Besides docs/, the site shows the changelog, the READMEs of the examples and of infra, and one page per
module, whose content is generated from docstrings. A link to a file that isn't a page of the site becomes a link to the repository.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / ".site-pages"
REPOSITORY = "https://github.com/onewrite/onewrite"
README_ADDRESS = re.compile(r"(?<=\]\()https://(?:github|raw\.githubusercontent)\.com/onewrite/onewrite/(?:blob/)?main/")
BADGE = re.compile(r"^\[!\[.*\n", re.MULTILINE)
REPOSITORY_ONLY = {"architecture.md", "benchmarks.md", "proof.md", "CONTRIBUTING.md", "SECURITY.md"}
MODULES = ["dynamodb", "mongodb", "identity", "aws_lambda", "brokers", "sqs", "outbox", "metrics", "testing"]
EXPLORE = """
## explore

`explore(build, messages, world, observe, **options)` tries every schedule; `explore.random` draws some of them:

::: onewrite.testing.explorer.explore.Explore
    options:
      filters: ["!^_[^_]", "!^__init__$"]
      show_bases: false

## What explore returns

::: onewrite.testing.explorer.exploration.Exploration
    options:
      show_root_heading: true
      show_root_toc_entry: true
      show_bases: false

::: onewrite.testing.explorer.remarks.Remark
    options:
      show_root_heading: true
      show_root_toc_entry: true
      show_bases: false
"""
CODE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)")


def source_pages() -> dict[str, str]:
    """Return the page of the site for each file of the repository that becomes one."""
    pages = {f"docs/{path.name}": path.name for path in (ROOT / "docs").glob("*.md") if path.name not in REPOSITORY_ONLY}
    examples = {
        f"examples/{path.parent.name}/README.md": f"examples/{path.parent.name}.md"
        for path in ROOT.glob("examples/*/README.md")
    }
    return {"README.md": "index.md", **pages, **examples, "CHANGELOG.md": "changelog.md", "infra/README.md": "infra.md"}


def read_page(source: str) -> str:
    """Return the page's text. The README's absolute links, which PyPI needs, become relative, and its badges are left out."""
    text = (ROOT / source).read_text()
    return README_ADDRESS.sub("", BADGE.sub("", text)) if source == "README.md" else text


def module_pages() -> dict[str, str]:
    """Return the generated pages and their text: one for each module."""
    pages = {"reference/onewrite.md": "# onewrite\n\n::: onewrite\n"}
    for module in MODULES:
        pages[f"reference/{module}.md"] = f"# onewrite.{module}\n\n::: onewrite.{module}\n"
    pages["reference/testing.md"] += EXPLORE
    return pages


def rewrite_links(text: str, source: str, pages: dict[str, str]) -> str:
    """Return the page's text with links that lead to pages of the site, or to the repository."""

    def rewrite(link: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        page = pages.get(file) or pages.get(f"{file}/README.md")
        if page is None and file.startswith("docs/") and file.endswith((".svg", ".png")):
            page = file.removeprefix("docs/")
        if page is None:
            return f"{REPOSITORY}/{'tree' if (ROOT / file).is_dir() else 'blob'}/main/{file}"
        return posixpath.relpath(page, posixpath.dirname(pages[source]) or ".")

    parts = CODE.split(text)
    prose = [LINK.sub(rewrite, part) for part in parts[::2]]
    return "".join(part + code for part, code in zip(prose, [*parts[1::2], ""], strict=True))


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    pages = source_pages()
    texts = {page: rewrite_links(read_page(source), source, pages) for source, page in pages.items()}
    for page, text in {**texts, **module_pages()}.items():
        path = TARGET / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    docs = ROOT / "docs"
    for asset in [*docs.glob("*.[ps][nv]g"), *docs.glob("diagrams/*.svg"), *docs.glob("site/*.[jc]s*")]:
        path = TARGET / asset.relative_to(docs)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(asset, path)


if __name__ == "__main__":
    main()
