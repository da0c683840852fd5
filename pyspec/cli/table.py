"""Tables of plain text, and numbers as people read them.

Owns columns, their alignment and units; leaves what stands in them, and where they are printed, to others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["bytes_text", "count_text", "table"]

_GAP = "  "


def table(rows: Sequence[Sequence[str]], *, header: Sequence[str] = (), right: Collection[int] = ()) -> str:
    """`rows` in columns as wide as they need, without trailing spaces or a final line end.

    Args:
        rows: cells; all rows have the same number of them.
        header: titles of the columns, underlined; none without.
        right: indices of the columns that are aligned to the right.
    """
    lines = [list(header), *map(list, rows)] if header else [list(row) for row in rows]
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if header:
        lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        _GAP.join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def bytes_text(n_bytes: int) -> str:
    """A size in the largest binary unit that leaves at least 1: "512 B", "11.7 MiB"."""
    size, units = float(n_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{n_bytes} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def count_text(n: int) -> str:
    """A number with the suffix that people use for parameters: "950", "11.5 M", "1.2 B"."""
    for unit, suffix in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if n >= unit:
            return f"{n / unit:.1f} {suffix}"
    return str(n)
