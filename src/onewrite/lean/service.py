"""What a lean client is told about the service that it speaks to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Service:
    """One of AWS's services whose requests are JSON.

    - `name`: as botocore's models and events say it; `title`: as people do.
    - `sender`: who has a lean client, for the log.
    - `methods`: the operations that may go lean, each with the method of the boto3 client. All of them may be sent twice.
    - `place`: the argument on which it may depend where a request goes, beside the credentials.
    - `body`: the arguments as the service's JSON. It raises what it likes if only botocore knows what to make of them.
    - `error_code`: the error that is an answer too, and is raised as boto3 does. None: every error is left to the client.
    - `checksum`: the header that holds the CRC-32 of an answer's body. None: the service sends none.
    - `handlers`: what botocore registers for a client of this service alone, as events with the names of functions. It changes nothing
      in these requests.
    """

    name: str
    title: str
    sender: str
    methods: Mapping[str, str]
    place: str
    body: Callable[[Mapping[str, Any]], bytes]
    error_code: str | None
    checksum: str | None
    handlers: frozenset[tuple[str, str]]
