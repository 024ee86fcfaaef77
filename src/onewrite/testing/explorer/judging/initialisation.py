"""What the first run of a handler does for the life of the process: it makes indexes, looks up the address of a queue. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from onewrite.testing.explorer.schedule import TakenStep
from onewrite.testing.taps.mongodb.methods import DESCRIBING, INDEXING
from onewrite.testing.taps.traffic import Request

# These ask for what lasts as long as the process, or make what is there once.
_AWS = ("Describe", "List", "GetQueueUrl", "GetParameter", "GetSecretValue", "GetCallerIdentity")
_AWS_MADE = frozenset({"CreateTable", "CreateQueue", "CreateTopic", "CreateBucket", "CreateEventBus", "AssumeRole"})
_MONGODB = INDEXING | DESCRIBING | {"command"}


def initialisation(first: Sequence[TakenStep], second: Sequence[TakenStep]) -> list[Request] | None:
    """The requests that only the first of two runs has sent, if each of them is of this kind and the runs are else the same.

    None: the runs differ in other ways.
    """
    rest = list(second)
    only_first: list[Request] = []
    for taken in first:
        if rest and rest[0].key == taken.key:
            rest.pop(0)
        elif taken.request is not None and _initialises(taken.request):
            only_first.append(taken.request)
        else:
            return None
    return None if rest else only_first


def _initialises(request: Request) -> bool:
    return request.method.startswith(_AWS) or request.method in _AWS_MADE or request.method in _MONGODB
