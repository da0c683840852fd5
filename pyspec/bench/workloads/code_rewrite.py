"""A file is to be written again with three small changes: almost all of the answer stands in the prompt.

Owns its words.
"""

from __future__ import annotations

__all__ = ["CHANGES", "CONTINUATION", "PROMPT"]

_FILE = '''\
"""Lending books: who has which copy, until when, and what is due."""

import datetime
import json
from dataclasses import asdict, dataclass, field

LOAN_DAYS = 21
FINE_PER_DAY = 10


@dataclass
class Copy:
    """One copy of a book; `borrower` is None while it stands on its shelf."""

    barcode: str
    title: str
    author: str
    shelf: str
    borrower: str | None = None
    due: datetime.date | None = None
    history: list[str] = field(default_factory=list)


class Library:
    """All copies by their barcodes, and what borrowers owe."""

    def __init__(self, copies=()):
        self.copies = {copy.barcode: copy for copy in copies}
        self.fines = {}

    def add(self, copy):
        if copy.barcode in self.copies:
            raise ValueError(f"{copy.barcode} is in use already")
        self.copies[copy.barcode] = copy

    def find(self, text):
        """Copies whose title or author has `text` in it, in the order of their shelves."""
        text = text.lower()
        found = [c for c in self.copies.values() if text in c.title.lower() or text in c.author.lower()]
        return sorted(found, key=lambda copy: (copy.shelf, copy.title))

    def lend(self, barcode, borrower, today):
        copy = self.copies[barcode]
        if copy.borrower is not None:
            raise ValueError(f"{copy.title} is out until {copy.due}")
        if self.fines.get(borrower, 0) > 0:
            raise ValueError(f"{borrower} has a fine to pay first")
        copy.borrower = borrower
        copy.due = today + datetime.timedelta(days=LOAN_DAYS)
        copy.history.append(f"{today} lent to {borrower}")
        return copy.due

    def give_back(self, barcode, today):
        copy = self.copies[barcode]
        if copy.borrower is None:
            raise ValueError(f"{copy.title} was not out")
        late = (today - copy.due).days
        if late > 0:
            owed = self.fines.get(copy.borrower, 0)
            self.fines[copy.borrower] = owed + late * FINE_PER_DAY
        copy.history.append(f"{today} back from {copy.borrower}")
        copy.borrower = None
        copy.due = None

    def pay(self, borrower, cents):
        owed = self.fines.get(borrower, 0)
        if cents > owed:
            raise ValueError(f"{borrower} owes only {owed} cents")
        self.fines[borrower] = owed - cents

    def overdue(self, today):
        """Copies that should be back, the one that is out for longest first."""
        late = [copy for copy in self.copies.values() if copy.due is not None and copy.due < today]
        return sorted(late, key=lambda copy: copy.due)

    def save(self, path):
        data = {"copies": [asdict(copy) for copy in self.copies.values()], "fines": self.fines}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=2, default=str)
'''

CHANGES = (
    ("borrower", "reader"),
    (
        "        if cents > owed:\n",
        '        if cents <= 0:\n            raise ValueError("nothing was paid")\n        if cents > owed:\n',
    ),
    ("json.dump(data, file, indent=2, default=str)", "json.dump(data, file, indent=2, default=str, sort_keys=True)"),
)
"""What became what, everywhere."""


def _changed(text: str) -> str:
    for old, new in CHANGES:
        text = text.replace(old, new)
    return text


PROMPT = f"""\
Please make three changes to this file: a borrower is called a reader everywhere, `pay` refuses sums that are not
positive, and the keys of the saved file are sorted. Leave everything else as it is, and print the whole file.

```python
{_FILE}```

The whole file with the three changes:

```python
"""

CONTINUATION = _changed(_FILE) + "```\n"
