"""A folder of sockets and counters that nobody else can enter, for as long as the server runs."""

import os
import shutil
import socket
import tempfile
from pathlib import Path

_PREFIX = "onward-"


def make_folder() -> Path:
    """A new folder, open to this user alone; those of servers that were killed are removed."""
    root = Path(tempfile.gettempdir())
    for old in root.glob(f"{_PREFIX}*"):
        if _is_abandoned(old):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))


def _is_abandoned(folder: Path) -> bool:
    try:
        if folder.stat().st_uid != os.getuid() or folder.is_symlink():
            return False
        os.kill(int(folder.name.split("-")[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return False


def unix_socket(path: Path) -> socket.socket:
    """A listening Unix socket that this user alone can reach."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen(128)
    return listening
