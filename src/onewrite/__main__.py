"""`python -m onewrite`."""

from onewrite.cli import main

raise SystemExit(main())
