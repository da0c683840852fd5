"""Tasks of tests, which may not wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

WAIT_S = 100.0

_T = TypeVar("_T")


def run(task: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(asyncio.wait_for(task, WAIT_S))
