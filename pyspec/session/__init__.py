"""Conversations: turns on one text, of which memory keeps as much as it can.

`session` has the turns, `state` what a file holds of a `Llama`, `file` and `plain_data` the file itself.
"""

from pyspec.session.session import Session, Turn

__all__ = ["Session", "Turn"]
