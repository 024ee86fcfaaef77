"""Workers that crash while they take a payment, for three ways to take it: `python -m payment`."""

from __future__ import annotations

from payment.count import COMES_AGAIN, WAYS, Counting, opened, rows

_WIDTHS = {"soon": 11, "after two days": 16, "never": 11}


def main() -> None:
    whens = [when for _ in WAYS for when in COMES_AGAIN]
    print(f"{'':32}{''.join(f'{way:{sum(_WIDTHS.values())}}' for way in WAYS)}".rstrip())
    print(_line("the client comes back", whens))
    with opened() as table:
        for name, verdicts in rows(Counting(table)):
            print(_line(name, verdicts))


def _line(name: str, cells: list[str]) -> str:
    widths = [*_WIDTHS.values()] * len(WAYS)
    return f"{name:32}{''.join(f'{cell:{width}}' for cell, width in zip(cells, widths, strict=True))}".rstrip()


if __name__ == "__main__":
    main()
