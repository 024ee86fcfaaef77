"""What infra/package.py writes: it starts under the runtime's Python, from bytecode, with nothing that the runtime has already."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from order_history.__main__ import deliveries  # pyright: ignore[reportMissingImports]
from tests.support import runtimes
from tests.support.ci import in_ci
from tests.support.deployment import as_json
from tests.support.packages import ROOT, make_package

PYMONGO = ["--install", "pymongo>=4.13"]
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
INFORMATION = f"onewrite-{VERSION}.dist-info"
AARCH64 = 183  # what an ELF file calls the processor


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("package") / "function.zip"
    make_package("--output", target)
    return target


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the runtime has beside its Python."""
    return runtimes.sdk_into(tmp_path_factory.mktemp("sdk"))


def downloaded(*arguments: str | Path, python: str | Path = sys.executable) -> None:
    """Packs with what pip must fetch. Where it reaches no index there is nothing to look at."""
    try:
        make_package(*arguments, python=python)
    except subprocess.CalledProcessError as error:
        if in_ci() or b"No matching distribution" not in error.stderr:
            raise
        pytest.skip("pip reaches no package index")


def unpacked(package: Path, folder: Path) -> Path:
    ZipFile(package).extractall(folder)
    return folder


def start(program: str, *path: Path, python: str | Path = sys.executable) -> str:
    """What the program prints, with no other modules than those on the path."""
    isolated = {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    # -S: without what is installed into this Python.
    command = [python, "-S", "-c", program]
    ran = subprocess.run(command, env=isolated, cwd=path[0], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def tops(package: Path) -> set[str]:
    return {name.partition("/")[0] for name in ZipFile(package).namelist()}


def test_package_contains_only_library_and_example(package: Path) -> None:
    names = ZipFile(package).namelist()
    assert tops(package) == {"onewrite", "order_history", INFORMATION}
    assert {"onewrite/py.typed", "onewrite/aws_lambda/__init__.py", "order_history/feed.py"} <= set(names)
    assert [name for name in names if {"tests", "operate", "sqs", "testing"} & set(name.split("/"))] == []


IMPORT_ALL = """
import importlib, pkgutil, onewrite
for module in pkgutil.walk_packages(onewrite.__path__, "onewrite."):
    importlib.import_module(module.name)
print(onewrite.__file__)
"""


def test_packaged_modules_do_not_import_omitted_modules(package: Path, tmp_path: Path) -> None:
    folder = unpacked(package, tmp_path)
    installed = [Path(path) for path in sys.path if "site-packages" in path]
    assert Path(start(IMPORT_ALL, folder, *installed).strip()).is_relative_to(folder)


def test_same_source_produces_the_same_bytes(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = package.with_name("again.zip")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    make_package("--output", again)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(package.read_bytes()).digest()


RUN = """
import json, boto3, botocore.stub, order_history.feed as feed
table = boto3.resource("dynamodb", "eu-west-1", aws_access_key_id="x", aws_secret_access_key="x").Table("order-history")
feed.history = lambda: feed.OrderHistory(table)
event = {"Records": [{"messageId": "b-1", "body": CREATED}, {"messageId": "b-2", "body": "no JSON"}]}
with botocore.stub.Stubber(table.meta.client) as answering:
    answering.add_response("update_item", {})
    print(json.dumps(feed.handler(event, None)))
    answering.assert_no_pending_responses()
"""


@pytest.mark.parametrize(
    "version", [pytest.param(each, marks=[] if each == THIS_PYTHON else [pytest.mark.slow]) for each in runtimes.VERSIONS]
)
def test_packaged_handler_runs_from_bytecode_with_the_runtimes_packages_only(
    version: str, sdk: Path, tmp_path: Path
) -> None:
    if version not in runtimes.pythons():
        pytest.skip(f"there is no Python {version} with pip here")
    python = runtimes.pythons()[version]
    make_package("--output", tmp_path / "function.zip", python=python)
    folder = unpacked(tmp_path / "function.zip", tmp_path / "task")
    for source in folder.rglob("*.py"):
        source.write_text("raise SystemExit('compiled from its source')")

    created = next(event for event in deliveries() if type(event).__name__ == "OrderCreated")
    told = start(RUN.replace("CREATED", repr(as_json(created))), folder, sdk, python=python)
    assert json.loads(told) == {"batchItemFailures": [{"itemIdentifier": "b-2"}]}


def test_layer_provides_the_compiled_library_to_other_code(sdk: Path, tmp_path: Path) -> None:
    said = make_package("--layer", "--output", tmp_path / "layer.zip")
    names = ZipFile(tmp_path / "layer.zip").namelist()
    modules, compiled = ([name for name in names if name.endswith(end)] for end in (".py", ".pyc"))
    assert len(compiled) == len(modules) > 0
    assert f"compiled to bytecode: {len(compiled)} of {len(modules)} modules\n" in said
    assert tops(tmp_path / "layer.zip") == {"python"}
    folder = unpacked(tmp_path / "layer.zip", tmp_path / "opt") / "python"
    assert Path(start("import onewrite.aws_lambda as it; print(it.__file__)", folder, sdk)).is_relative_to(folder)


@pytest.mark.slow
def test_wheels_are_those_of_the_functions_processor(tmp_path: Path) -> None:
    downloaded(*PYMONGO, "--architecture", "arm64", "--output", tmp_path / "function.zip")

    assert {"bson", "dns", "onewrite", "pymongo"} <= tops(tmp_path / "function.zip")
    with ZipFile(tmp_path / "function.zip") as archive:
        compiled = [name for name in archive.namelist() if name.endswith(".so")]
        processors = {int.from_bytes(archive.read(name)[18:20], "little") for name in compiled}
    tag = f"cpython-{sys.version_info.major}{sys.version_info.minor}-aarch64-linux-gnu.so"
    assert compiled != []
    assert [name for name in compiled if not name.endswith(tag)] == []
    assert processors == {AARCH64}


# ---------------------------------------------------------------- what pip is asked for


def wheel(folder: Path, name: str, version: str, *, says: str, requires: str | None = None) -> str:
    """An index of one distribution, whose module says something; and the hash of its wheel."""
    at = folder / name
    at.mkdir(parents=True, exist_ok=True)
    information = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (
        f"Requires-Dist: {requires}\n" if requires else ""
    )
    files = {
        f"{name}.py": f"SAYS = {says!r}\n",
        f"{information}/METADATA": metadata,
        f"{information}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{information}/RECORD"))
    file = at / f"{name}-{version}-py3-none-any.whl"
    with ZipFile(file, "w") as archive:
        for path, text in {**files, f"{information}/RECORD": record}.items():
            archive.writestr(path, text)
    (at / "index.html").write_text(f'<a href="{file.name}">{file.name}</a>')
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of one's own; the one that pip would ask has a package of the same name and version."""
    wheel(tmp_path / "public", "shopkit", "1.0", says="public")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "public").as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path / "private"


def test_packaged_versions_are_the_resolved_versions(private: Path, tmp_path: Path) -> None:
    wheel(private, "shopkit", "1.0", says="private")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"--index-url {private.as_uri()}\nshopkit\n")
    make_package("--requirements", requirements, "--output", tmp_path / "function.zip")

    with ZipFile(tmp_path / "function.zip") as archive:
        assert archive.read("shopkit.py") == b"SAYS = 'private'\n"
        names = {name for name in archive.namelist() if name.startswith("shopkit-1.0.dist-info/")}
    assert names == {"shopkit-1.0.dist-info/METADATA", "shopkit-1.0.dist-info/WHEEL"}  # and nothing of this machine


def test_packages_of_runtime_and_checkout_are_left_out(private: Path, tmp_path: Path) -> None:
    wheel(private, "shopkit", "1.0", says="private", requires="six")
    wheel(private, "six", "9.9", says="not Lambda's")
    wheel(private, "onewrite", "0.0.1", says="an old one")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"--index-url {private.as_uri()}\nshopkit\nonewrite\n")
    said = make_package("--requirements", requirements, "--output", tmp_path / "function.zip")

    assert tops(tmp_path / "function.zip") >= {"shopkit.py", "onewrite", INFORMATION}
    assert {"six.py", "onewrite.py", "onewrite-0.0.1.dist-info"} & tops(tmp_path / "function.zip") == set()
    assert "left out: onewrite 0.0.1 (this checkout's is packed)\n" in said
    assert "left out: six 9.9 (Lambda's Python has it)\n" in said


# ---------------------------------------------------------------- what is yours


def test_importable_packages_are_packed_and_others_named(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    files = {
        "__init__.py": "",
        "handlers.py": "from shop.tests.samples import ORDER",
        "tests/samples.py": "ORDER = 1",
        ".env": "PASSWORD=1",
    }
    for name, text in files.items():
        (shop / name).parent.mkdir(parents=True, exist_ok=True)
        (shop / name).write_text(text)
    said = make_package("--output", tmp_path / "function.zip", shop)

    packed = {name for name in ZipFile(tmp_path / "function.zip").namelist() if name.startswith("shop/")}
    kept = {"shop/__init__.py", "shop/handlers.py", "shop/tests/samples.py"}
    assert {name for name in packed if "__pycache__" not in name} == kept
    assert {line for line in said.splitlines() if "shop" in line} == {"left out: shop/.env (hidden)"}

    (shop / "handlers.py").write_text("")
    said = make_package("--output", tmp_path / "again.zip", shop)
    assert "left out: shop/tests (no other module names it)\n" in said
    assert [name for name in ZipFile(tmp_path / "again.zip").namelist() if "/tests/" in name] == []


def test_links_and_special_files_are_left_out_and_named(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    (shop / "a").mkdir(parents=True)
    for name, text in {"__init__.py": "", "a/rates.txt": "1.10", "run.sh": "#!/bin/sh"}.items():
        (shop / name).write_text(text)
    (shop / "run.sh").chmod(0o700)
    for name, target in {"out": tmp_path, "self": shop / "self", "within": shop / "a"}.items():
        (shop / name).symlink_to(target)
    os.mkfifo(shop / "pipe")
    (shop / "\udcff").touch()  # a name that isn't UTF-8
    (tmp_path / "other").symlink_to(shop)  # a package can be a link itself
    said = make_package("--output", tmp_path / "function.zip", tmp_path / "other")

    with ZipFile(tmp_path / "function.zip") as archive:
        packed = {name: archive.getinfo(name).external_attr >> 16 for name in archive.namelist() if "other/" in name}
    names = {name.partition("/")[2] for name in packed if "__pycache__" not in name}
    assert names == {"__init__.py", "run.sh", "a/rates.txt"}
    assert {name for name, mode in packed.items() if mode == 0o755} == {"other/run.sh"}
    reasons = {
        line.split()[2].partition("/")[2]: line.partition("(")[2][:-1] for line in said.splitlines() if "other/" in line
    }
    assert reasons == {
        "out": "a link",
        "self": "a link",
        "within": "a link",
        "pipe": "neither a file nor a folder",
        "\\udcff": "an unprintable name",
    }


@pytest.mark.parametrize(("name", "says"), [("my-shop", b"importable"), ("onewrite", b"would be mixed with it")])
def test_unimportable_package_is_refused(tmp_path: Path, name: str, says: bytes) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(subprocess.CalledProcessError) as refused:
        make_package("--output", tmp_path / "function.zip", tmp_path / name)
    assert says in refused.value.stderr
