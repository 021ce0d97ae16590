"""CPU time and memory of a process and all that it started."""

from pathlib import Path


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, pending = [], [pid]
    while pending:
        found.append(pending.pop())
        pending += children.get(found[-1], [])
    return found


def cpu_seconds(pid: int) -> float:
    """Time on a CPU of all threads of the family, exact to the nanosecond.

    The ticks of ``/proc/PID/stat`` are samples: they miss much of what runs in short bursts.
    """
    total = 0
    for one in family(pid):
        for thread in Path(f"/proc/{one}/task").iterdir():
            try:
                total += int((thread / "schedstat").read_text().split()[0])
            except (OSError, IndexError):
                continue
    return total / 1e9


def memory(pid: int) -> int:
    """Bytes of memory of the family: proportional set size, so shared pages count once."""
    total = 0
    for one in family(pid):
        for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total
