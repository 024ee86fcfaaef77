"""The same orders on the same bad day twice, with the guard and without it: `python -m saga`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from random import Random

from saga.bad_day import CUSTOMERS, LIMIT, BadDay, Trouble, opened, orders_of_the_day
from saga.count import Count, count


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m saga", description=__doc__)
    parser.add_argument("--seed", type=int, default=9, help="decides who acts when, and what goes wrong")
    parser.add_argument("--orders", type=int, default=6, help="how many the shoppers want")
    options = parser.parse_args(argv)
    # Handlers and relays log each failure. Here, failures are intended, and the table counts them.
    logging.getLogger("onewrite").addHandler(logging.NullHandler())
    guarded, unguarded = (day_of(options.seed, options.orders, guarded=guarded) for guarded in (True, False))
    print(f"{'':28}{'guarded':>10}{'unguarded':>12}")
    for row in zip(lines(guarded), lines(unguarded), strict=True):
        (name, left), (_, right) = row
        print(f"{name:28}{left:>10}{right:>12}".rstrip())


def day_of(seed: int, orders: int, *, guarded: bool = True, trouble: Trouble | None = None) -> Count:
    """Play one bad day, deliver every published event once more, and count."""
    wanted = orders_of_the_day(orders, Random(seed))
    with opened() as stores:
        day = BadDay(stores, seed, wanted, trouble=trouble or Trouble(), guarded=guarded)
        day.play()
        day.redeliver()
        return count(stores, day, wanted=len(wanted), limits=LIMIT * len(CUSTOMERS))


def lines(counted: Count) -> list[tuple[str, str]]:
    return [
        ("orders wanted", str(counted.wanted)),
        ("orders placed", str(counted.placed)),
        ("  confirmed", str(counted.confirmed)),
        ("  refused", str(counted.refused)),
        ("  shipped", str(counted.shipped)),
        ("  cancelled", str(counted.cancelled)),
        ("  without an end", str(counted.unfinished)),
        ("parcels sent", str(counted.parcels)),
        ("customers' limits", _money(counted.limits)),
        ("  left to spend", _money(counted.left)),
        ("  spent on what was shipped", _money(counted.spent)),
        ("  missing", _money(counted.missing)),
        ("events published", str(counted.published)),
        ("  out of order", str(counted.out_of_order)),
        ("  copies published", str(counted.copies_published)),
        ("copies dropped", str(counted.copies_dropped)),
        ("messages that came too early", str(counted.came_too_early)),
        ("crashes", str(counted.crashes)),
        ("answers lost", str(counted.lost_answers)),
        ("it adds up", "yes" if counted.adds_up else "NO"),
    ]


def _money(cents: int) -> str:
    return f"{cents / 100:,.2f}"


if __name__ == "__main__":
    main()
