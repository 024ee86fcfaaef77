"""Numbers for requests, by which the same requests are found again."""

from __future__ import annotations

import pickle
from collections.abc import Hashable

from onewrite.testing.model.canonical import NotCanonicalError, canonical
from onewrite.testing.taps.traffic import Request

_MOST_PICKLES = 100_000  # a cache that is emptied when it is full, so that it does not grow with the exploration


class Keys:
    def __init__(self) -> None:
        self._keys: dict[Hashable, int] = {}
        self._keys_of_pickles: dict[bytes, int | None] = {}

    def key(self, request: Request) -> int | None:
        """A number that is the same for all requests that are the same; None for a request without a canonical form.

        Equal pickles mean equal requests, and pickling is quick. So the canonical form is made only for new pickles.
        """
        try:
            pickled = pickle.dumps((request.store, request.method, dict(request.arguments), dict(request.options)))
        except Exception:
            return self._key_of_form(request)
        if pickled not in self._keys_of_pickles:
            if len(self._keys_of_pickles) == _MOST_PICKLES:
                self._keys_of_pickles.clear()
            self._keys_of_pickles[pickled] = self._key_of_form(request)
        return self._keys_of_pickles[pickled]

    def _key_of_form(self, request: Request) -> int | None:
        ordered = not request.method[0].isupper()  # a method of a collection, and no operation of AWS
        try:
            arguments = [(name, canonical(value, ordered=ordered)) for name, value in request.arguments.items()]
            form = (request.store, request.method, tuple(sorted(arguments)), canonical(request.options, ordered=False))
        except NotCanonicalError:
            return None
        return self._keys.setdefault(form, len(self._keys) + 1)
