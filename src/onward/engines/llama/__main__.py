"""``python -m onward.engines.llama SOCKET_FD``: the engine process, started by `process.EngineProcess`.

Standard input: one line of JSON (`LlamaSettings`), then nothing until it closes. It closes when the
process that started this one ends, however that happens, and then this one ends too. Standard
output: one line once the engine serves. Standard error: for people.
"""

import os
import signal
import socket
import sys
import threading

import msgspec

from onward.engines.llama.binding import Context, EngineUnusableError, Library, Model
from onward.engines.llama.pictures import ROWS_WITH_IMAGES
from onward.engines.llama.projector import Projector
from onward.engines.llama.server import Server
from onward.engines.llama.settings import EXIT_UNUSABLE, LlamaSettings, default_threads
from onward.engines.llama.slots import CHUNK


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # sent to a whole group they are for the supervisor
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=LlamaSettings)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    listener = socket.socket(fileno=int(sys.argv[1]))

    try:
        model = Model(Library(), settings.model_path)
        length = settings.context_length or model.trained_context
        threads = settings.threads or default_threads()
        projector = Projector(model, settings.mmproj_path, threads=threads) if settings.mmproj_path else None
        rows = max(CHUNK, settings.slots)
        whole = projector is not None and projector.sees_ahead
        context = Context(
            model,
            sequences=settings.slots,
            length=length,
            threads=threads,
            batch=max(rows, ROWS_WITH_IMAGES) if whole else rows,
            outputs=rows,
        )
        server = Server(
            listener,
            context,
            slots=settings.slots,
            queue=settings.queue,
            length=length,
            adapters=settings.adapters,
            projector=projector,
        )
    except EngineUnusableError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_UNUSABLE)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    server.run()


def _end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
