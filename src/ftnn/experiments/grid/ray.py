"""Runs stages on a Ray cluster. Needs the extra `ftnn[ray]`."""

from __future__ import annotations

import queue
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

from ftnn.errors import FtnnError
from ftnn.experiments.grid.jobs import Broken, Event, Job, Lost, Outcome, Progress


class RayExecutor:
    """Runs one stage per CPU of the Ray cluster at `address`: HOST:PORT, or "auto" for this machine's."""

    def __init__(self, address: str):
        self._ray = _ray()
        self._started = not self._ray.is_initialized()
        if self._started:
            _connect(self._ray, address)
        # No retries by Ray: the scheduler resumes lost stages from their checkpoints.
        self._remote = self._ray.remote(num_cpus=1, max_retries=0)(_stream)
        self._streams: dict[Any, str] = {}
        self._counted = (0.0, 0)

    @property
    def slots(self) -> int:
        """The number of CPUs in the cluster now: machines may join and leave."""
        now = time.monotonic()
        if now - self._counted[0] > 2:
            self._counted = (now, max(1, int(self._ray.cluster_resources().get("CPU", 0))))
        return self._counted[1]

    def submit(self, job: Job) -> None:
        self._streams[self._remote.remote(job)] = job.task.key

    def events(self, seconds: float) -> list[Event]:
        if not self._streams:
            time.sleep(min(seconds, 0.05))
            return []
        streams = list(self._streams)
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=seconds, fetch_local=False)
        return [event for stream in ready for event in self._next(stream)]

    def _next(self, stream: Any) -> list[Event]:
        try:
            event: Event = self._ray.get(next(stream))
        except StopIteration:
            del self._streams[stream]
            return []
        except self._ray.exceptions.RayError as error:
            return [
                Lost(self._streams.pop(stream), f"its machine or worker was lost ({type(error).__name__})")
            ]
        if not isinstance(event, Progress):
            del self._streams[stream]
        return [event]

    def close(self) -> None:
        for stream in self._streams:
            self._ray.cancel(stream, force=True)
        self._streams.clear()
        if self._started:
            self._ray.shutdown()


def _stream(job: Job) -> Iterator[Progress | Outcome | Broken]:
    """Run a stage, and yield its events as they occur."""
    import torch

    torch.set_num_threads(1)
    events: queue.Queue[Progress | Outcome | Broken] = queue.Queue()

    def work() -> None:
        try:
            events.put(job.run(events.put))
        except Exception:
            events.put(Broken(job.task.key, traceback.format_exc()))

    threading.Thread(target=work, daemon=True).start()
    while True:
        event = events.get()
        yield event
        if not isinstance(event, Progress):
            return


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise FtnnError("Ray is not installed: pip install 'ftnn[ray]'") from None
    return ray


def _connect(ray: Any, address: str) -> None:
    try:
        _check_reachable(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises many types
        raise FtnnError(
            f"no Ray cluster answers at {address} ({str(error).splitlines()[0]}). Start one with "
            "`ray start --head`, and give its HOST:PORT, or auto on one of its machines"
        ) from error


def _check_reachable(address: str) -> None:
    """Fail fast: Ray itself would keep trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not colon or not port.isdecimal():
        raise ValueError("expected HOST:PORT or auto")
    socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
