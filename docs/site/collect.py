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
from textwrap import indent

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / ".site-pages"
REPOSITORY = "https://github.com/onewrite/onewrite"
REPOSITORY_ONLY = {"architecture.md", "benchmarks.md", "proof.md", "CONTRIBUTING.md", "SECURITY.md"}
# The index names `explore`, which is an instance. These classes show how it is called, and its result.
EXPLORE = """
## explore

`explore(build, messages, world, observe, **options)` tries every schedule; `explore.random` draws some of them:

::: onewrite.testing.explorer.explore.Explore
    options:
      filters: ["!^_[^_]", "!^__init__$"]
      show_root_heading: false
      show_root_toc_entry: false

::: onewrite.testing.explorer.exploration.Exploration

::: onewrite.testing.explorer.remarks.Remark
"""
# The methods of a store in reading order, for all four stores. Without a list, those of a base class come first.
STORE_METHODS = [
    *("update_item", "update_one", "find_one_and_update", "put_item", "insert_one"),
    *("delete_item", "delete_one", "find_one_and_delete", "remember", "update_batch"),
    *("perform_effect", "begin_effect", "release_effect", "open_effects"),
    *("get_item", "find_one", "preview", "without_ledger", "explain"),
    *("replace_one", "find_one_and_replace", "update_many"),  # refused
]
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
        module: re.findall(r"^- `(\w+)`:", names, re.MULTILINE)
        for module, names in zip(modules[::2], modules[1::2], strict=True)
    }


def name_page(module: str) -> str:
    """Return the generated page of a module."""
    return f"reference/{module.removeprefix('onewrite.')}.md"


def module_pages() -> dict[str, str]:
    """Return the generated pages and their text: one for each module."""
    return {
        name_page(module): "\n".join([f"# {module}\n", *(show_name(module, name) for name in names)])
        for module, names in read_names().items()
    }


def show_name(module: str, name: str) -> str:
    """Return the section of a generated page that shows a name."""
    if name == "explore":
        return EXPLORE
    is_store = name.endswith(("GuardedTable", "GuardedCollection"))
    return f"::: {module}.{name}\n" + (f"    options:\n      members: [{', '.join(STORE_METHODS)}]\n" if is_store else "")


def link_names(text: str) -> str:
    """Return the index of names, each with a link to its signature."""
    lines, module = [], ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"## (onewrite\S*)", line):
            module = heading[1]
        name = re.match(r"- `(\w+)`:", line)
        anchor = "" if name is None else "explore" if name[1] == "explore" else f"{module}.{name[1]}"
        lines.append(re.sub(r"`(\w+)`", rf"[`\1`]({name_page(module)}#{anchor})", line, count=1) if anchor else line)
    return "\n".join(lines)


def make_tabs(text: str) -> str:
    """Return the page with a tab in place of each section under a heading of the third level."""
    parts = re.split(r"^(?=## |### )", text, flags=re.MULTILINE)
    return "".join(show_tab(part) if part.startswith("### ") else part for part in parts)


def show_tab(section: str) -> str:
    heading, _, body = section.partition("\n")
    return f'=== "{heading.removeprefix("### ")}"\n{indent(body, " " * 4)}'


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
    texts["brokers.md"] = make_tabs(texts["brokers.md"])
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
