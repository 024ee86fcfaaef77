"""Copy the site's pages into .site-pages/, from which MkDocs or a successor builds the site.

docs/site/home.md is the first page. In addition to docs/, the site shows the changelog, the READMEs of the examples and of infra, and one
page per module, which is generated from docstrings in the order of docs/reference.md. A link to a file that isn't a page of the site
becomes a link to the repository.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / ".site-pages"
REPOSITORY = "https://github.com/onewrite/onewrite"
REPOSITORY_ONLY = {"architecture.md", "benchmarks.md", "proof.md", "CONTRIBUTING.md", "SECURITY.md"}
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
    return {
        "docs/site/home.md": "index.md",
        **pages,
        **examples,
        "CHANGELOG.md": "changelog.md",
        "infra/README.md": "infra.md",
    }


def read_names() -> dict[str, list[str]]:
    """Return the public names of each module, in the order of docs/reference.md."""
    modules = re.split(r"^## (onewrite\S*)$", (ROOT / "docs" / "reference.md").read_text(), flags=re.MULTILINE)[1:]
    return {
        module: re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
        for module, table in zip(modules[::2], modules[1::2], strict=True)
    }


def name_page(module: str) -> str:
    """Return the generated page of a module."""
    return f"reference/{module.removeprefix('onewrite.')}.md"


def module_pages() -> dict[str, str]:
    """Return the generated pages and their text: one for each module."""
    pages = {}
    for module, names in read_names().items():
        sections = [f"::: {module}.{name}\n" for name in names if name != "explore"]
        pages[name_page(module)] = "\n".join([f"# {module}\n", *sections])
    pages["reference/testing.md"] += EXPLORE
    return pages


def link_names(text: str) -> str:
    """Return the index of names, each with a link to its signature."""
    lines, module = [], ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"## (onewrite\S*)", line):
            module = heading[1]
        name = re.match(r"\| `(\w+)` \|", line)
        anchor = "" if name is None else "explore" if name[1] == "explore" else f"{module}.{name[1]}"
        lines.append(re.sub(r"`(\w+)`", rf"[`\1`]({name_page(module)}#{anchor})", line, count=1) if anchor else line)
    return "\n".join(lines)


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
    texts = {page: rewrite_links((ROOT / source).read_text(), source, pages) for source, page in pages.items()}
    texts["reference.md"] = link_names(texts["reference.md"])
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
