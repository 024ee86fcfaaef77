"""Zips the order-history example and the library for Lambda: `python infra/package.py` writes dist/order_history.zip.

Nothing is installed into it: boto3, and jmespath which boto3 needs, are part of Lambda's Python.
"""  # noqa: INP001  # a script

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dist" / "order_history.zip"
SOURCES = (ROOT / "src" / "onewrite", ROOT / "examples" / "order_history")
LEFT_OUT = {"tests", "__pycache__"}
# The same for every file and every run: the same source makes the same bytes, and nothing is deployed that did not change.
WRITTEN = (1980, 1, 1, 0, 0, 0)
READABLE = 0o644 << 16


def package(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(target, "w") as archive:
        for name, path in _files():
            entry = ZipInfo(name, WRITTEN)
            entry.external_attr = READABLE
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return target


def _files() -> Iterator[tuple[str, Path]]:
    for source in SOURCES:
        for path in sorted(source.rglob("*")):
            inside = path.relative_to(source.parent)
            if path.is_file() and LEFT_OUT.isdisjoint(inside.parts):
                yield inside.as_posix(), path


if __name__ == "__main__":
    sys.stdout.write(f"{package(Path(sys.argv[1]) if sys.argv[1:] else PACKAGE)}\n")
