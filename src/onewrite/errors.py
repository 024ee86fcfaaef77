"""What can be wrong with the way onewrite is used. Outcomes of a write are values, never exceptions.

OnewriteError
├── InvalidMessage        the message lacks what its ledger needs
├── InvalidUpdate         the native call would break the ledger, or could never be sent
├── LedgerMismatch        the entity holds something else where the ledger should be
├── EntityTooLarge        the write would push the entity over the engine's limit
└── ConfigurationError    a store, handler, worker or test was put together wrongly

Beside them stand `aws_lambda.EveryRecordFailed`, where it is asked for, `aws_lambda.NotSettled` and `testing.StandInLies`.

What a driver raises (throttling, no connection, access denied) is not in this tree: it passes through untouched.
"""


class OnewriteError(Exception):
    """onewrite cannot do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class InvalidMessage(OnewriteError):
    """The message cannot be guarded: give it what the ledger needs, and let the broker keep it until then."""


class InvalidUpdate(OnewriteError):
    """This native call would damage the ledger: change the call; nothing was sent."""


class LedgerMismatch(OnewriteError):
    """The entity holds something else where the ledger should be: nothing was written."""


class EntityTooLarge(OnewriteError):
    """The entity would exceed the engine's size limit: it is unchanged, and every later message will meet this too."""


class ConfigurationError(OnewriteError):
    """Something was put together wrongly: mend the call that made it."""
