"""The server of the local model, as a process: `python -m contextc.providers.local.serve FOLDER MODEL WINDOW IDLE`.

llama.cpp answers the requests, on threads of its own: OpenAI's Chat Completions and Responses, and Anthropic's
Messages. What is done here is to start it, to write down where it is, and to end it: when nobody has asked anything for
a while, when the model's file is gone, or when `server.json` is no longer its own.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from contextc.providers.local.locks import take
from contextc.providers.local.model import template_for
from contextc.providers.local.running import Place, Server

LOCK_SECONDS = 5.0
LONGEST_PAUSE = 1.0
LONGEST_REPLY = 1_024
PROMPT_CACHE_MIB = 128
NAMES = ("prompt_tokens_total", "n_decode_total", "requests_processing", "requests_deferred")


class Work(NamedTuple):
    """What the server has done so far, and what it has to do now."""

    read: float
    decoded: float
    processing: float
    waiting: float


def main(folder: str, model: str, window: str, idle: str) -> None:
    place = Place(Path(folder))
    end = time.monotonic() + LOCK_SECONDS
    while take(place.alive) is None:
        if time.monotonic() > end:
            sys.exit("Another server holds the lock.")
        time.sleep(0.05)
    key = secrets.token_urlsafe(32)
    try:
        server = llama(Path(model), int(window), key)
    except RuntimeError as error:
        sys.exit(f"{model} cannot be run: {error}")
    port = int(server.listening_address.rpartition(":")[2])
    place.write(Server(pid=os.getpid(), port=port, key=key, model=model, window=int(window)))
    watch(place, Path(model), float(idle), lambda: work(server.handle_metrics()))
    os._exit(0)  # not by way of the threads that wait for the next request


def llama(model: Path, window: int, key: str) -> Any:  # xllamacpp has no types
    """llama.cpp's server, which listens when this returns. One request at a time; the others wait."""
    xllamacpp: Any = import_module("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.model_alias = {model.stem}
    parameters.n_ctx = window
    parameters.n_predict = LONGEST_REPLY  # where a request does not say how long; a small model may not find an end
    parameters.n_parallel = 1
    cores = os.cpu_count() or 1
    parameters.cpuparams.n_threads = max(1, cores // 2)  # on busy cores they would wait for one another at every token
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
    if (template := template_for(model)) is not None:
        parameters.chat_template = template.read_text("utf-8")
        parameters.sampling.temp = 0.0
        parameters.sampling.dry_multiplier = 0.8  # or it says the same thing again and again
        parameters.sampling.dry_allowed_length = 12  # but a call may look like the one before
    return xllamacpp.Server(parameters)


def work(metrics: str) -> Work:
    """From the server's own account, in the text form of Prometheus."""
    found = dict.fromkeys(NAMES, 0.0)
    for line in metrics.splitlines():
        name, _, value = line.removeprefix("llamacpp:").partition(" ")
        if name in found:
            found[name] = float(value)
    return Work(*(found[name] for name in NAMES))


def watch(place: Place, model: Path, idle: float, look: Callable[[], Work]) -> None:
    """Returns when the server is to end."""
    pid, last, before = os.getpid(), time.monotonic(), None
    while model.is_file() and (now := _seen(place, look)) is not None:
        written = place.read()
        if written is None or written.pid != pid:
            return
        if now != before or now[0].processing or now[0].waiting:
            last, before = time.monotonic(), now
        elif time.monotonic() - last >= idle and _leave(place, look, now):
            return
        time.sleep(min(LONGEST_PAUSE, idle / 4))


def _seen(place: Place, look: Callable[[], Work]) -> tuple[Work, int] | None:
    """What has been done, and when the server was last wanted; None where its file has been taken away."""
    try:
        return look(), place.state.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _leave(place: Place, look: Callable[[], Work], before: tuple[Work, int]) -> bool:
    """Take the server off the books, unless somebody is just coming. They hold the same lock."""
    if (lock := take(place.starting)) is None:
        return False
    try:
        if _seen(place, look) != before:
            return False
        place.state.unlink(missing_ok=True)
        return True
    finally:
        os.close(lock)


if __name__ == "__main__":
    main(*sys.argv[1:])
