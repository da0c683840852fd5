"""A class is to be written again with one name changed: almost all of the answer stands in the prompt.

Owns its words.
"""

from __future__ import annotations

import re

__all__ = ["CONTINUATION", "PROMPT"]

_CLASS = '''\
class Account:
    """Money of one customer, in whole cents."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.entries = []

    def deposit(self, cents, note=""):
        if cents <= 0:
            raise ValueError("a deposit needs a positive sum")
        self.balance += cents
        self.entries.append(("deposit", cents, note))

    def withdraw(self, cents, note=""):
        if cents > self.balance:
            missing = cents - self.balance
            raise ValueError(f"{self.owner} lacks {missing} cents")
        self.balance -= cents
        self.entries.append(("withdraw", cents, note))

    def move(self, other, cents):
        self.withdraw(cents, note=f"to {other.owner}")
        other.deposit(cents, note=f"from {self.owner}")

    def report(self):
        lines = [f"{kind:10} {cents:8} {note}" for kind, cents, note in self.entries]
        lines.append(f"balance of {self.owner}: {self.balance}")
        return "\\n".join(lines)
'''

PROMPT = f"""\
The following class keeps the money of a customer. The name `balance` is used for something else in the rest of the
program now, so it has to become `funds` everywhere in the class. Nothing else may change.

```python
{_CLASS}```

The whole class again, with `balance` renamed to `funds`:

```python
"""

CONTINUATION = re.sub(r"\bbalance\b", "funds", _CLASS) + "```\n"
