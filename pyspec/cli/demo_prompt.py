"""The demo's task: a function to be written again with one variable renamed, and the right answer.

Owns the prompt's words, which the embedded models were trained to understand; leaves running it to `demo`.
"""

from __future__ import annotations

import re

__all__ = ["ANSWER", "PROMPT"]

_OLD, _NEW = "limit", "maximum"
_FUNCTION = '''\
def average_length(words, limit=10):
    """Return the average length of the first words."""
    total = 0
    count = 0
    for word in words:
        if not word:
            continue
        total += len(word)
        count += 1
        if count >= limit:
            break
    if count == 0:
        return 0.0
    if total < 0:
        raise ValueError("total must not be negative")
    print("total:", total)
    print("count:", count)
    average = total / count
    total = round(total, 2)
    return average
'''

PROMPT = f"{_FUNCTION}\n# the same function with the variable {_OLD} renamed to {_NEW}:\n"
ANSWER = re.sub(rf"\b{_OLD}\b", _NEW, _FUNCTION)
