"""The thread that an engine works in.

Owns handing requests over to it, its beginning and its end. Leaves the work to `pyspec.engine.scheduler`.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable

from pyspec.engine.scheduler import Scheduler
from pyspec.engine.slots import EngineStats, Job
from pyspec.errors import ClosedError, QueueFullError

__all__ = ["Worker"]

_log = logging.getLogger("pyspec")


class Worker:
    """The thread that steps the scheduler; holds no reference to the engine, so that this can be collected."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._changed = threading.Condition()
        self._incoming: deque[Job] = deque()
        self._stopping = self._draining = False
        self._at_end: Callable[[], object] | None = None
        self._error: BaseException | None = None
        self._stats = EngineStats()

    def stats(self) -> EngineStats:
        """A copy as of the last step, and of what came since."""
        with self._changed:
            waiting = len(self._incoming)
            stats = dataclasses.replace(self._stats)
        stats.n_submitted += waiting
        stats.n_queued += waiting
        return stats

    def add(self, job: Job, max_queue: int) -> None:
        """Hand in a job.

        Raises:
            QueueFullError, ClosedError
        """
        with self._changed:
            self.refuse_closed()
            n_queued = len(self._incoming) + self._stats.n_queued
            if n_queued >= max_queue:
                raise QueueFullError(n_queued=n_queued, max_queue=max_queue)
            self._incoming.append(job)
            self._changed.notify()

    def refuse_closed(self) -> None:
        """Refuse where no more jobs are taken.

        Raises:
            ClosedError: with the fault that ended the work, if there was one.
        """
        if self._stopping:
            raise ClosedError(what="Engine") from self._error

    def stop(self, *, drain: bool, at_end: Callable[[], object] | None = None) -> None:
        """Take no more jobs; finish, or cancel, those that were handed in; then the worker calls `at_end`."""
        with self._changed:
            self._stopping, self._draining = True, drain
            self._at_end = at_end or self._at_end
            self._changed.notify()

    def run(self) -> None:
        """Work until stopped."""
        scheduler = self._scheduler
        try:
            while self._take():
                scheduler.step()
                with self._changed:
                    self._stats = dataclasses.replace(scheduler.stats)
        except BaseException as error:
            _log.error("the engine stopped: %s", error)
            with self._changed:
                self._stopping, self._error = True, error
                jobs = list(self._incoming)
                self._incoming.clear()
            for job in jobs:
                job.ticket.fail(error)
            scheduler.fail_all(error)
        finally:
            for slot in scheduler.slots:
                slot.speculators.close()
            if self._at_end is not None:
                self._at_end()

    def _take(self) -> bool:
        """Take over what was handed in, waiting while there is nothing to do; False when it is over."""
        scheduler = self._scheduler
        with self._changed:
            while not self._incoming and scheduler.is_idle and not self._stopping:
                self._changed.wait()
            while self._incoming:
                scheduler.add(self._incoming.popleft())
            scheduler.stats.n_queued = len(scheduler.queue)
            self._stats = dataclasses.replace(scheduler.stats)
            if self._stopping and not self._draining:
                for job in [*scheduler.queue, *(slot.job for slot in scheduler.slots if slot.job is not None)]:
                    job.generation.halt.cancel()
            return not (self._stopping and scheduler.is_idle)
