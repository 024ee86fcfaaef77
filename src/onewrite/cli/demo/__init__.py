"""`onewrite demo`."""
