"""`onewrite migrate`: `command.py` is the verb, `running.py` a run over a store, `bookmark.py` where it goes on."""
