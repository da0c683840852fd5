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
        self._n_patient = 0
        self._stats = EngineStats()

    def stats(self) -> EngineStats:
        """A copy as of the last step, and of what came since."""
        with self._changed:
            waiting = len(self._incoming)
            stats = dataclasses.replace(self._stats)
        stats.n_submitted += waiting
        stats.n_queued += waiting
        return stats

    def add(self, job: Job, max_queue: int, *, wait: bool = False) -> None:
        """Hand in a job, with `wait` as soon as there is room; those that wait have it before those that do not.

        Raises:
            QueueFullError, ClosedError
        """
        with self._changed:
            self.refuse_closed()
            if wait:
                self._wait_for_room(max_queue)
            elif (n_queued := self._n_queued + self._n_patient) >= max_queue:
                raise QueueFullError(n_queued=n_queued, max_queue=max_queue)
            self._incoming.append(job)
            self._changed.notify_all()

    @property
    def _n_queued(self) -> int:
        return len(self._incoming) + self._stats.n_queued

    def _wait_for_room(self, max_queue: int) -> None:
        self._n_patient += 1
        try:
            while self._n_queued >= max_queue:
                self._changed.wait()
                self.refuse_closed()
        finally:
            self._n_patient -= 1

    def refuse_closed(self) -> None:
        """Refuse where no more jobs are taken.

        Raises:
            ClosedError: with the fault that ended the work, if there was one.
        """
        if self._stopping:
            raise ClosedError(what="Engine") from self._error

    def stop(self, *, drain: bool, at_end: Callable[[], object] | None = None) -> None:
        """Take no more jobs; finish, or cancel, those that were handed in; then the worker calls `at_end`.

        Once they were to be cancelled, no later call finishes them.
        """
        with self._changed:
            self._draining = drain and (self._draining or not self._stopping)
            self._stopping = True
            self._at_end = at_end or self._at_end
            self._changed.notify_all()

    def run(self) -> None:
        """Work until stopped."""
        scheduler = self._scheduler
        try:
            while self._take():
                scheduler.step()
                with self._changed:
                    self._stats = dataclasses.replace(scheduler.stats)
                    if self._n_patient:
                        self._changed.notify_all()
        except BaseException as fault:
            _log.error("the engine stopped: %s: %s", type(fault).__name__, fault)
            error = fault
            if not isinstance(fault, Exception):  # a SystemExit would end whoever waits for a result
                error = RuntimeError(f"the engine stopped: {type(fault).__name__}: {fault}")
                error.__cause__ = fault
            with self._changed:
                self._stopping, self._error = True, error
                jobs = list(self._incoming)
                self._incoming.clear()
                self._changed.notify_all()
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
