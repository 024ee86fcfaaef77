"""What the documentation shows is what happens: every Python block runs, every docstring's example holds."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

import onewrite
from onewrite.testing import moto_table
from tests.support.pages import BLOCK, PAGES, ROOT, name, namespace_of

FENCED = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"# (\S+\.py)\n")  # a block that begins with one is that file
COMMAND = re.compile(r"\$ pytest (.*)\n")
SECONDS = re.compile(r"\d+\.\d+(?= ?s\b)")
FOUND = [module.name for module in pkgutil.walk_packages(onewrite.__path__, "onewrite.")]
MODULES = ["onewrite", *(name for name in FOUND if not name.endswith("__main__"))]  # to import that one is to run it


README = ROOT / "README.md"
LINKING_PAGES = [*PAGES, ROOT / "CHANGELOG.md"]


def test_readme_code_runs_unchanged() -> None:
    code = "\n".join(block[1] for block in BLOCK.finditer(README.read_text()))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page.stem in {"test-your-own", "testing"} else [])  # they explore
        for page in PAGES
        if page != README
    ],
    ids=name,
)
def test_python_blocks_of_pages_run(page: Path) -> None:
    namespace_of(page)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_first_pages_show_the_output_of_their_code(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    namespace_of(ROOT / page)
    shown = [block["text"] for block in FENCED.finditer((ROOT / page).read_text()) if block["language"] == "text"]
    assert capsys.readouterr().out == "".join(text for text in shown if "delivery 1" not in text)


@pytest.fixture(scope="module")
def everything_imported() -> None:
    """A run of pytest within this one forgets the modules that it imports first, and a second copy of them confuses the next run."""
    for module_name in MODULES:
        importlib.import_module(module_name)
    with moto_table("imported"):
        pass


@pytest.mark.parametrize("page", PAGES, ids=name)
@pytest.mark.usefixtures("everything_imported")
@pytest.mark.slow
def test_page_shows_the_output_of_pytest(page: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("COLUMNS", "100")
    for block in FENCED.finditer(page.read_text()):
        text = block["text"]
        if file := FILE_NAME.match(text):
            pytester.path.joinpath(file[1]).write_text(text)
        elif command := COMMAND.match(text):
            plugins = ["-p", "onewrite.testing.plugin", "-p", "no:cacheprovider"]
            result = pytester.runpytest_inprocess(*plugins, *command[1].split())
            shown = text[command.end() :]
            assert (result.ret == pytest.ExitCode.OK) == (" failed in " not in shown)
            assert re.fullmatch(pattern(shown), without_times(result.outlines)), shown


def pattern(shown: str) -> str:
    """Those lines, one after the other; a line of three dots stands for any."""
    lines = without_times(shown.splitlines()).splitlines()
    return "".join(r"(?:.*\n)*" if line == "..." else rf"{re.escape(line)}\n" for line in lines)


def without_times(lines: list[str]) -> str:
    return "".join(f"{SECONDS.sub('0', line.rstrip())}\n" for line in lines)


@pytest.mark.parametrize("page", LINKING_PAGES, ids=name)
def test_page_links_lead_to_existing_files(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_readme_links_are_absolute_and_lead_to_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    at_home = f"{project['urls']['Homepage']}/blob/main/"
    targets = re.findall(r"\]\(([^)#\s]+)", (ROOT / "README.md").read_text())
    ours = [target.removeprefix(at_home) for target in targets if target.startswith(at_home)]
    assert len(ours) > 5
    assert [target for target in ours if not (ROOT / target).exists()] == []
    assert [target for target in targets if not target.startswith("https://")] == []


@pytest.mark.parametrize("module_name", MODULES)
def test_docstring_examples_hold(module_name: str) -> None:
    module = importlib.import_module(module_name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert doctest.testmod(module, report=True).failed == 0


HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
ANCHOR = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site and GitHub make them."""
    text = FENCED.sub("", page.read_text())
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in HEADING.findall(text)]
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING_PAGES, ids=name)
def test_links_to_headings_lead_to_existing_headings(page: Path) -> None:
    links = [(page.parent / target if target else page, anchor) for target, anchor in ANCHOR.findall(page.read_text())]
    assert [anchor for target, anchor in links if target.suffix == ".md" and anchor not in anchors(target)] == []
