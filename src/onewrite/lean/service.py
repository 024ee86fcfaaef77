"""The description of a service for its lean client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Service:
    """One of AWS's services whose requests are JSON.

    - `name`: the name in botocore's models and events; `title`: the name in texts.
    - `sender`: the owner of the lean client, for the log.
    - `methods`: the lean operations, each with the method of the boto3 client. All of them can be sent twice.
    - `resource`: the argument on which a request's address can depend, besides the credentials.
    - `body`: returns the arguments as the service's JSON. It raises any exception for arguments that only botocore can handle.
    - `error_code`: the error that counts as a response, and is raised like boto3 does. None: the client handles every error.
    - `checksum`: the header with the CRC-32 of a response's body. None: the service doesn't send one.
    - `event_handlers`: the event handlers that botocore registers only for this service's clients, as events with the names of functions. They don't
      change these requests.
    """

    name: str
    title: str
    sender: str
    methods: Mapping[str, str]
    resource: str
    body: Callable[[Mapping[str, Any]], bytes]
    error_code: str | None
    checksum: str | None
    event_handlers: frozenset[tuple[str, str]]
