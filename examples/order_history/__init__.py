"""The order history of a food delivery service: one item per order, updated by events of orders and deliveries."""

from order_history.handlers import handle
from order_history.history import OrderHistory, Page
from order_history.table import create_table

__all__ = ["OrderHistory", "Page", "create_table", "handle"]
