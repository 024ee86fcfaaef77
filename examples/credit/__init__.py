"""Reserve customer credit for orders: one MongoDB document per customer, and commands in any order and more than once."""

from credit.commands import ReleaseCredit, ReserveCredit, TransferCredit
from credit.customers import Customers
from credit.handlers import release, reserve, transfer

__all__ = ["Customers", "ReleaseCredit", "ReserveCredit", "TransferCredit", "release", "reserve", "transfer"]
