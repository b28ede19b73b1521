"""Server process of the local model: `python -m contextc.providers.local_server_process FOLDER MODEL WINDOW IDLE`.

llama.cpp answers the requests on its own threads: OpenAI's Chat Completions and Responses, and Anthropic's Messages.
This process starts it, writes `server.json`, and ends it. It ends when it is idle for too long, when the model file is
gone, or when `server.json` belongs to another server.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from contextc._file_lock import try_lock
from contextc.providers.local import LocalServer, ServerFolder, chat_template

LOCK_SECONDS = 5.0
MAX_PAUSE = 1.0
MAX_REPLY_TOKENS = 1_024
PROMPT_CACHE_MIB = 128
METRIC_NAMES = ("prompt_tokens_total", "n_decode_total", "requests_processing", "requests_deferred")


class ServerMetrics(NamedTuple):
    """Metrics of the server: tokens read and decoded so far, and requests in progress and waiting."""

    read: float
    decoded: float
    processing: float
    waiting: float


def main(folder: str, model: str, window: str, idle: str) -> None:
    place = ServerFolder(Path(folder))
    end = time.monotonic() + LOCK_SECONDS
    while try_lock(place.alive_lock) is None:
        if time.monotonic() > end:
            sys.exit("alive.lock: already held by another server.")
        time.sleep(0.05)
    key = secrets.token_urlsafe(32)
    try:
        server = start_llama_server(Path(model), int(window), key)
    except RuntimeError as error:
        sys.exit(f"{model}: cannot run this model: {error}")
    port = int(server.listening_address.rpartition(":")[2])
    place.write_state(LocalServer(pid=os.getpid(), port=port, key=key, model=model, window=int(window)))
    wait_until_idle(place, Path(model), float(idle), lambda: parse_metrics(server.handle_metrics()))
    os._exit(0)  # do not wait for the request threads


def start_llama_server(model: Path, window: int, key: str) -> Any:  # xllamacpp has no types
    """Start llama.cpp's server, which listens when this returns. It runs one request at a time, others wait."""
    xllamacpp: Any = import_module("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.model_alias = {model.stem}
    parameters.n_ctx = window
    parameters.n_predict = MAX_REPLY_TOKENS  # default limit: a small model may not stop by itself
    parameters.n_parallel = 1
    cores = os.cpu_count() or 1
    parameters.cpuparams.n_threads = max(1, cores // 2)  # on busy cores, threads wait for each other at every token
    parameters.cpuparams_batch.n_threads = cores
    parameters.cpuparams.poll = parameters.cpuparams_batch.poll = 0
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [key]
    parameters.cors_origins = "http://127.0.0.1"
    parameters.ui = False
    parameters.verbosity = 1  # errors
    parameters.endpoint_slots = False
    parameters.endpoint_metrics = True
    parameters.cache_ram_mib = PROMPT_CACHE_MIB
    if (template := chat_template(model)) is not None:
        parameters.chat_template = template.read_text("utf-8")
        parameters.sampling.temp = 0.0
        parameters.sampling.dry_multiplier = 0.8  # prevents endless repetition
        parameters.sampling.dry_allowed_length = 12  # a tool call may resemble the one before
    return xllamacpp.Server(parameters)


def parse_metrics(metrics: str) -> ServerMetrics:
    """Parse the server's metrics, which are in Prometheus text format."""
    found = dict.fromkeys(METRIC_NAMES, 0.0)
    for line in metrics.splitlines():
        name, _, value = line.removeprefix("llamacpp:").partition(" ")
        if name in found:
            found[name] = float(value)
    return ServerMetrics(*(found[name] for name in METRIC_NAMES))


def wait_until_idle(place: ServerFolder, model: Path, idle: float, read_metrics: Callable[[], ServerMetrics]) -> None:
    """Return when the server should end."""
    pid, last, before = os.getpid(), time.monotonic(), None
    while model.is_file() and (now := _last_activity(place, read_metrics)) is not None:
        written = place.read_state()
        if written is None or written.pid != pid:
            return
        if now != before or now[0].processing or now[0].waiting:
            last, before = time.monotonic(), now
        elif time.monotonic() - last >= idle and _release(place, read_metrics, now):
            return
        time.sleep(min(MAX_PAUSE, idle / 4))


def _last_activity(place: ServerFolder, read_metrics: Callable[[], ServerMetrics]) -> tuple[ServerMetrics, int] | None:
    """Return the metrics and the time of the last use, or None if `server.json` is gone."""
    try:
        return read_metrics(), place.state_file.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _release(place: ServerFolder, look: Callable[[], ServerMetrics], before: tuple[ServerMetrics, int]) -> bool:
    """Delete `server.json` and return True, unless a client is using the server. Clients hold the same lock."""
    if (lock := try_lock(place.start_lock)) is None:
        return False
    try:
        if _last_activity(place, look) != before:
            return False
        place.state_file.unlink(missing_ok=True)
        return True
    finally:
        os.close(lock)


if __name__ == "__main__":
    main(*sys.argv[1:])
