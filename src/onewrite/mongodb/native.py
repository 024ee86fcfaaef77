"""The arguments of pymongo's own calls, by name and type, for type checkers and editors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.collation import Collation

Hint: TypeAlias = str | Sequence[str | tuple[str, int | str | Mapping[str, Any]]] | Mapping[str, Any]
Sort: TypeAlias = Hint


class _EveryCall(TypedDict, total=False):
    """The arguments of every call."""

    comment: Any
    session: ClientSession | AsyncClientSession | None


class PreviewArguments(_EveryCall, total=False):
    """The arguments of `preview` after the filter. It reads the whole document."""

    collation: Collation | Mapping[str, Any] | None


class EffectArguments(_EveryCall, total=False):
    """The arguments of `begin_effect` and `perform_effect` after the filter and the effect's arguments."""

    missing_ok: bool
    rejected_ok: bool


class InsertOneArguments(_EveryCall, total=False):
    """The arguments of `insert_one` after the document."""

    rejected_ok: bool
    bypass_document_validation: bool | None


class UpdateOneArguments(PreviewArguments, InsertOneArguments, total=False):
    """The arguments of `update_one` after the filter and the update, and of `remember` after the filter."""

    missing_ok: bool
    upsert: bool
    array_filters: Sequence[Mapping[str, Any]] | None
    hint: Hint | None
    let: Mapping[str, Any] | None
    sort: Mapping[str, Any] | None


class DeleteOneArguments(PreviewArguments, total=False):
    """The arguments of `delete_one` after the filter."""

    missing_ok: bool
    rejected_ok: bool
    hint: Hint | None
    let: Mapping[str, Any] | None


class FindOneAndDeleteArguments(DeleteOneArguments, total=False):
    """The arguments of `find_one_and_delete` after the filter."""

    sort: Sort | None


class FindOneAndUpdateArguments(PreviewArguments, total=False):
    """The arguments of `find_one_and_update` after the filter and the update."""

    missing_ok: bool
    rejected_ok: bool
    sort: Sort | None
    upsert: bool
    return_document: bool
    array_filters: Sequence[Mapping[str, Any]] | None
    hint: Hint | None
    let: Mapping[str, Any] | None
    maxTimeMS: int
    bypassDocumentValidation: bool  # pymongo sends these two options unchanged


class FindOneArguments(PreviewArguments, total=False):
    """The arguments of `find_one` after the filter."""

    projection: Mapping[str, Any] | Iterable[str] | None
    sort: Sort | None
    skip: int
    hint: Hint | None
    let: Mapping[str, Any] | None
    min: Sort | None
    max: Sort | None
    max_time_ms: int | None
    allow_disk_use: bool | None
    allow_partial_results: bool
    batch_size: int
    no_cursor_timeout: bool
    return_key: bool | None
    show_record_id: bool | None
