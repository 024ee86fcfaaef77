"""A checkout: orders, credit, and shipping, which exchange events, on two engines."""

from saga.orders import Orders, PlaceOrder
from saga.table import create_table
from saga.wires import Shop, shop_on

__all__ = ["Orders", "PlaceOrder", "Shop", "create_table", "shop_on"]
