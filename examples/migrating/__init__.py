"""Scripts to copy: carry what your own code knows about messages into a ledger, and remove all ledgers."""
