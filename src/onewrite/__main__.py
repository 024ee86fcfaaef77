"""`python -m onewrite`."""

from onewrite.operate import main

raise SystemExit(main())
