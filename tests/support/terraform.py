"""The real terraform program, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

# Where a machine that does not reach the registry keeps providers, as `terraform providers mirror` writes them.
MIRROR = "ONEWRITE_TERRAFORM_MIRROR"
HOMES_OF_MIRRORS = (
    "/opt",
    "/usr/share",
    "/usr/local/share",
    "/usr/lib",
    "/usr/local/lib",
    "/var/lib",
    "~",
    "~/.terraform.d",
    "~/.local/share",
)
PROGRAM_MISSING = "terraform is not on PATH: https://developer.hashicorp.com/terraform/install"
PROVIDER_MISSING = (
    "terraform finds no AWS provider: let it reach registry.terraform.io, or set ONEWRITE_TERRAFORM_MIRROR to a folder "
    "that `terraform providers mirror` has filled. It said: "
)


@dataclass(frozen=True, slots=True)
class Terraform:
    folder: Path
    environment: dict[str, str]

    @classmethod
    def within(cls, folder: Path) -> Terraform:
        if shutil.which("terraform") is None:
            pytest.skip(PROGRAM_MISSING)
        environment = {**os.environ, "CHECKPOINT_DISABLE": "1"}
        # A file that is named and missing is a warning in every answer.
        if not Path(environment.get("TF_CLI_CONFIG_FILE", "")).is_file():
            environment.pop("TF_CLI_CONFIG_FILE", None)
        return cls(folder, environment)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["terraform", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=600
        )

    def install_provider(self) -> None:
        init = ("init", "-input=false", "-no-color")
        # First as the machine is configured. A mirror leaves nothing else to look into.
        for source in ([], *[[f"-plugin-dir={mirror}"] for mirror in mirrors()]):
            process = self(*init, *source)
            if process.returncode == 0:
                return
        pytest.skip(PROVIDER_MISSING + process.stderr.strip())


def mirrors() -> list[Path]:
    """Folders with the AWS provider in them: the one that is named, the cache of providers, and where packages put them."""
    named_folders = [Path(os.environ[name]) for name in (MIRROR, "TF_PLUGIN_CACHE_DIR") if name in os.environ]
    homes = [Path(home).expanduser() for home in HOMES_OF_MIRRORS]
    found_folders = [
        folder.parents[2] for home in homes for folder in sorted(home.glob("*/registry.terraform.io/hashicorp/aws"))
    ]
    return [*named_folders, *found_folders]
