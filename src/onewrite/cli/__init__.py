"""The `onewrite` command."""
