"""How facts are asked for. What is refused or fails is answered by `Unread` instead of being raised.

A reader is a generator that yields questions and is sent the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from onewrite.doctor.facts import Unread
from onewrite.flow import Yielded, drive, performer

T = TypeVar("T")

# What AWS answers where a permission is missing: each service has a spelling of its own.
_REFUSED_BY_AWS = ("AccessDenied", "UnauthorizedOperation")
_UNAUTHORIZED = 13  # MongoDB's code for a missing privilege
_REFUSED_BY_ATLAS = 8000  # that of MongoDB Atlas
_LONGEST = 300  # characters of an error


class Question(NamedTuple):
    """A request that reads. `what` is said of it where it cannot be answered, and `permission` is the one that it needs."""

    what: str
    permission: str
    step: Yielded


Reader: TypeAlias = Generator[Question, Any, T]


@dataclass(frozen=True, slots=True)
class Asking:
    """Tells the errors of a service, its driver or the network, and among them those for lack of a permission."""

    is_failure: Callable[[Exception], bool]
    is_refusal: Callable[[Exception], bool]

    def run(self, reader: Reader[T], target: object) -> T:
        """What the reader has found, by this client."""
        perform = performer(target)

        def answer(question: Question) -> Any:
            try:
                return perform(question.step)
            except Exception as error:
                if not self.is_failure(error):
                    raise
                told = " ".join(str(error).split())[:_LONGEST]
                return Unread(question.what, told, question.permission if self.is_refusal(error) else None)

        return drive(reader, answer)


def refused_by_aws(error: Exception) -> bool:
    response: Any = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", ""))
    return any(each in code for each in _REFUSED_BY_AWS)


def refused_by_mongodb(error: Exception) -> bool:
    return getattr(error, "code", None) in (_UNAUTHORIZED, _REFUSED_BY_ATLAS)
