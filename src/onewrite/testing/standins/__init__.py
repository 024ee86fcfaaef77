"""In-memory tables and collections: moto and mongomock, patched as far as guarded writes need it.

Read stores.py first. For moto, moto_patches.py replaces methods. For mongomock, collection.py has the classes. Both refuse calls
whose results are known to be wrong. docs/standins.md lists the worst differences that remain, and each module the others.
"""
