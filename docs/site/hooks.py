"""Pages of the site that do not stand in docs/: the changelog, and what the folders of the examples and of infra say of themselves.

A link from a page to a file that is no page of the site leads to that file in the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/onewrite/onewrite"
ELSEWHERE = {
    "changelog.md": "CHANGELOG.md",
    "infra.md": "infra/README.md",
    **{f"examples/{page.parent.name}.md": page.relative_to(ROOT).as_posix() for page in ROOT.glob("examples/*/README.md")},
}
PAGES = {path: place for place, path in ELSEWHERE.items()}
CODE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    for place, path in ELSEWHERE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_post_build(config: Any) -> None:
    """The theme's page for an address that leads nowhere has links that only a server could answer, and this site is read without one."""
    (Path(config.site_dir) / "404.html").unlink()


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    path = ELSEWHERE.get(place, f"docs/{place}")
    parts = CODE.split(markdown)
    prose = [LINK.sub(lambda link: as_link(link[1], path, place), text) for text in parts[::2]]
    return "".join(text + code for text, code in zip(prose, [*parts[1::2], ""], strict=True))


def as_link(target: str, path: str, place: str) -> str:
    """What a link to `target` in the file `path` is on the site, where that file is the page `place`."""
    file = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    page = PAGES.get(file) or PAGES.get(f"{file}/README.md")
    if page is None and file.startswith("docs/"):
        page = file.removeprefix("docs/")
    if page is None:
        return f"{REPOSITORY}/{'tree' if (ROOT / file).is_dir() else 'blob'}/main/{file}"
    return posixpath.relpath(page, posixpath.dirname(place) or ".")
