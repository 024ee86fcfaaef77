"""Tables and collections in memory: moto and mongomock, mended where guarded writes need it.

Read stores.py first. For moto, moto_patches.py replaces methods. For mongomock, collection.py has the classes. Both refuse calls that are
known to be answered wrongly. docs/standins.md lists what is mended, what is refused and what stays different.
"""
