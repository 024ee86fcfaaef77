"""Errors for wrong uses of onewrite. Outcomes of a write are values, never exceptions.

OnewriteError
├── InvalidMessage        the message lacks a field that its ledger needs
├── InvalidUpdate         the native call would break the ledger, or could never be sent
├── LedgerMismatch        the entity holds other data in the ledger's place
├── EntityTooLarge        the write would exceed the engine's size limit
├── InvalidResponse       the response isn't DynamoDB's, so the outcome of the call is unknown
└── ConfigurationError    a store, handler, worker, or test was set up wrongly

Submodules add `aws_lambda.EveryRecordFailed`, `aws_lambda.NotSettled`, and `testing.UnsupportedByStandIn`.

Driver exceptions (throttling, no connection, access denied) pass through unchanged and are not in this tree.
"""


class OnewriteError(Exception):
    """The base class of all errors that onewrite raises."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class InvalidMessage(OnewriteError):
    """The message lacks a field that its ledger needs. Fix the producer or the identity; nothing was written."""


class InvalidUpdate(OnewriteError):
    """The native call would damage the ledger. Change the call; nothing was sent."""


class LedgerMismatch(OnewriteError):
    """The entity holds other data in the ledger's place. Nothing was written."""


class EntityTooLarge(OnewriteError):
    """The entity would exceed the engine's size limit. It is unchanged, and later messages that add data will fail too."""


class InvalidResponse(OnewriteError):
    """The response isn't DynamoDB's, so the outcome is unknown. Let the message be redelivered, and check what is between."""


class ConfigurationError(OnewriteError):
    """A store, handler, worker, or test was set up wrongly. Fix the call that made it."""
