"""Reserve customer credit for orders: one MongoDB document per customer, and commands in any order and more than once."""

from credit.commands import ReleaseCredit, ReserveCredit
from credit.customers import Customers
from credit.handlers import release, reserve

__all__ = ["Customers", "ReleaseCredit", "ReserveCredit", "release", "reserve"]
