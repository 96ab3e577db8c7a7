"""Stages on the machines of a Ray cluster. Needs the extra `ftnn[ray]`."""

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
    """A stage a processor of the cluster at `address`; "auto" is the one that this machine belongs to."""

    def __init__(self, address: str):
        self._ray = _ray()
        self._started = not self._ray.is_initialized()
        if self._started:
            _connect(self._ray, address)
        # A lost machine's stages are given out again by the scheduler, from their checkpoints, not by Ray.
        self._remote = self._ray.remote(num_cpus=1, max_retries=0)(_stream)
        self._streams: dict[Any, str] = {}
        self._counted = (0.0, 0)

    @property
    def slots(self) -> int:
        """The processors that the cluster has now: machines may join and leave."""
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
        if not ready:
            return []
        return [event for stream in ready for event in self._next(stream)]

    def _next(self, stream: Any) -> list[Event]:
        key = self._streams[stream]
        try:
            event: Event = self._ray.get(next(stream))
        except StopIteration:
            del self._streams[stream]
            return []
        except self._ray.exceptions.RayError as error:
            del self._streams[stream]
            return [Lost(key, f"its machine or worker was lost ({type(error).__name__})")]
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
    """What a stage has to say, as it says it."""
    import torch

    torch.set_num_threads(1)
    said: queue.Queue[Progress | Outcome | Broken] = queue.Queue()

    def work() -> None:
        try:
            said.put(job.run(said.put))
        except Exception:
            said.put(Broken(job.task.key, traceback.format_exc()))

    threading.Thread(target=work, daemon=True).start()
    while True:
        event = said.get()
        yield event
        if not isinstance(event, Progress):
            return


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise FtnnError("--ray needs Ray: pip install 'ftnn[ray]'") from None
    return ray


def _connect(ray: Any, address: str) -> None:
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises several kinds
        raise FtnnError(
            f"--ray {address}: no Ray cluster answers ({str(error).splitlines()[0]}). Start one "
            "with `ray start --head`, and name it as HOST:PORT, or as auto on one of its machines"
        ) from error


def _knock(address: str) -> None:
    """Find out whether anything is there: Ray itself tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not colon or not port.isdecimal():
        raise ValueError("an address is HOST:PORT, or auto")
    socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
