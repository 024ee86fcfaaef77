"""moto as a server in a process of its own: SQS and DynamoDB at one address, for workers that are processes too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from onewrite.testing.servers.engines import REGION
from onewrite.testing.servers.process import ServerProcess

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class MotoServer(ServerProcess):
    """Its conditional writes are not atomic: only one worker at a time may write to its tables."""

    name = "moto"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def sqs(self) -> SQSClient:
        session = boto3.Session(aws_access_key_id="dummy", aws_secret_access_key="dummy", region_name=REGION)
        return session.client("sqs", endpoint_url=self.endpoint, config=Config(retries={"total_max_attempts": 1}))

    def _make_command(self, folder: Path) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def _is_ready(self) -> bool:
        client = self.sqs()
        try:
            client.list_queues()
        except (BotoCoreError, ClientError):
            return False
        finally:
            client.close()
        return True
