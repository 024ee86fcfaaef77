"""The two Dockerfiles: every instruction is carried out, and what comes of it starts, works and stops as a container does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from onewrite.testing.servers.engines import REGION
from onewrite.testing.servers.process import find_free_port
from order_history import OrderHistory, create_table  # pyright: ignore[reportMissingImports]  # an example, which pyright does not look into
from order_history.__main__ import deliveries  # pyright: ignore[reportMissingImports]
from tests.support import containers, runtimes
from tests.support.containers import Build, Image
from tests.support.deployment import as_json
from tests.support.moto_server import MotoServer
from tests.support.packages import ROOT

pytestmark = pytest.mark.slow

WORKER = ROOT / "infra" / "Dockerfile"
FUNCTION = ROOT / "infra" / "lambda.Dockerfile"
PATIENCE = 120.0  # seconds, on a busy machine
DUMMY = {"AWS_ACCESS_KEY_ID": "dummy", "AWS_SECRET_ACCESS_KEY": "dummy", "AWS_DEFAULT_REGION": REGION}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Image]:
    if not containers.possible():
        pytest.skip("namespaces of Linux are not allowed here: they need root")
    sdk = runtimes.sdk_into(tmp_path_factory.mktemp("sdk"))

    def python(image: str) -> tuple[Path, dict[str, str]]:
        version = re.search(r":(3\.\d+)", image)
        assert version is not None, image
        if version[1] not in runtimes.pythons():
            pytest.skip(f"there is no Python {version[1]} with pip here")
        found = runtimes.home(runtimes.pythons()[version[1]])
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": "/usr/local/lib"}
        return found, {**environment, "PYTHONPATH": "/var/task:/var/runtime"} if "lambda" in image else environment

    def build(dockerfile: Path, **arguments: str) -> Image:
        image = Build(ROOT, tmp_path_factory.mktemp("image"), python, **arguments).build(dockerfile)
        if "lambda" in dockerfile.name:  # its base image has the SDK, and a root that anybody may read
            (image.root / "var" / "runtime").symlink_to(_within(image, sdk))
        return image

    return build


def _within(image: Image, folder: Path) -> str:
    """The folder's content, in the image."""
    subprocess.run(["cp", "-r", folder, image.root / "sdk"], check=True)
    return "/sdk"


@pytest.fixture(scope="module")
def worker(built: Callable[..., Image]) -> Image:
    return built(WORKER)


@pytest.fixture
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@contextlib.contextmanager
def running(image: Image, *arguments: str, environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The container, and its process 1 as this machine numbers it."""
    container = image.start(*arguments, environment=environment)
    try:
        yield container, _first_child(container.pid)
    finally:
        container.kill()
        container.communicate()


def _first_child(parent: int) -> int:
    """unshare's own child. Seen from inside it is process 1."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    until(lambda: children.read_text().split())
    return int(children.read_text().split()[0])


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.05)


def test_worker_container_processes_messages_and_stops_cleanly(worker: Image, moto: MotoServer) -> None:
    aws: dict[str, Any] = {"endpoint_url": moto.endpoint, "region_name": REGION}
    aws |= {"aws_access_key_id": "dummy", "aws_secret_access_key": "dummy"}
    history = OrderHistory(create_table(boto3.resource("dynamodb", **aws)))
    queue = moto.sqs().create_queue(QueueName="events")["QueueUrl"]
    created = next(event for event in deliveries() if type(event).__name__ == "OrderCreated")
    moto.sqs().send_message(QueueUrl=queue, MessageBody=as_json(created))

    environment = {**DUMMY, "AWS_ENDPOINT_URL": moto.endpoint, "ORDERS_TABLE": "order-history", **health_port()}
    arguments = ["--queue-url", queue, "order_history.feed:handler"]
    with running(worker, *arguments, environment=environment) as (container, process_1):
        until(lambda: container.poll() is not None or history.order("o-1") is not None)
        worker.run(*worker.health, environment=environment)  # which fails if it is not healthy
        signal_it(process_1, worker.stop_signal)
        _, log = container.communicate(timeout=PATIENCE)

    assert container.returncode == 0, log
    assert moto.sqs().receive_message(QueueUrl=queue).get("Messages") is None


def health_port() -> dict[str, str]:
    """Another one than the image's: its container has the network of this machine."""
    return {"ONEWRITE_WORKER_HEALTH_PORT": str(find_free_port())}


def signal_it(process: int, name: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.Signals[name])


def test_modules_are_not_imported_from_a_writable_folder(worker: Image) -> None:
    program = """
import os, sys
from onewrite.operate.modules import find
find("order_history.feed:handler")
print([folder for folder in sys.path if folder and os.access(folder, os.W_OK)], sys.path[0])
"""
    assert worker.run("python", "-P", "-c", program).strip() == "[] /app/lib/handlers"


def test_worker_cannot_write_to_its_image(worker: Image) -> None:
    program = "import os, sys; print(os.getuid(), os.access('/app', os.W_OK), os.access(sys.prefix, os.W_OK))"
    assert worker.run("python", "-c", program).split() == ["10001", "False", "False"]


def test_image_holds_its_modules_and_extras(built: Callable[..., Image]) -> None:
    image = built(WORKER, HANDLERS="examples/saga", EXTRAS="aws,mongodb")
    assert image.run("python", "-c", "import pymongo, events; print(events.__name__)") == "events\n"
    assert "--once" in image.run("onewrite", "relay", "--help")
    assert image.entrypoint == ["onewrite", "worker"]


def test_lambda_image_handles_an_event(built: Callable[..., Image]) -> None:
    image = built(FUNCTION)
    module, _, name = image.command[0].rpartition(".")
    program = f"""
import json, {module}
answer = {module}.{name}({{"Records": [{{"messageId": "b-1", "body": "no JSON"}}]}}, None)
print(json.dumps([answer, {module}.__file__]))
"""
    answer, file = json.loads(image.run("python", "-c", program, environment=DUMMY))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "b-1"}]}
    assert file.startswith("/var/task/")


@pytest.mark.parametrize("dockerfile", [WORKER, FUNCTION], ids=lambda path: path.name)
def test_copied_files_are_not_in_dockerignore(dockerfile: Path) -> None:
    kept = dockerfile.with_name(f"{dockerfile.name}.dockerignore").read_text()
    given = dict(rest.split("=") for name, rest in containers.instructions(dockerfile) if name == "ARG")
    copied = [
        re.sub(r"\$\{(\w+)\}", lambda found: given[found[1]], rest).split()[:-1]
        for name, rest in containers.instructions(dockerfile)
        if name == "COPY"
    ]
    sources = {source for each in copied if not each[0].startswith("--from") for source in each}
    missing = [source for source in sources if not any(f"!{top}\n" in kept for top in (source, source.partition("/")[0]))]
    assert missing == []
    assert kept.splitlines()[0] == "*"  # everything else stays out
