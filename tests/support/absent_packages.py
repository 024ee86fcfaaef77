"""Stand-ins of packages that docs/recipes.md uses and the tests don't install: as much of each as the page uses."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


class FastAPI:
    def post(self, path: str) -> Callable[[Any], Any]:
        return lambda function: function


class HTTPException(Exception):
    def __init__(self, status_code: int, detail: str) -> None:
        super().__init__(detail)
        self.status_code = status_code


def _module(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module


STAND_INS = {
    "fastapi": _module("fastapi", FastAPI=FastAPI, HTTPException=HTTPException, Header=lambda: None),
}
