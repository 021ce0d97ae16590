"""Which numbered statements, known faults of other servers and complaints about gateways no test covers.

A test names them by `@pytest.mark.covers("O-1")`, `@pytest.mark.fault("D01")` and
`@pytest.mark.complaint("G01")`; what is not on the lists is an error. After a run of the whole suite,
what is left over is printed.
"""

import pytest

STATEMENTS = tuple(
    f"{group}-{number}"
    for group, count in (("O", 6), ("TC", 12), ("TH", 16), ("K", 12), ("P", 13))
    for number in range(1, count + 1)
)
FAULTS = tuple(f"D{number:02}" for number in range(1, 26))
COMPLAINTS = tuple(
    f"G{number:02}"
    for number in (1, 3, 5, 6, 7, 9, 11, 12, 14, 15, 16, 17, 19, 20, 21, 23, 25, 26, 27, 28, 30, 33, 34, 36)
)
MARKS = {"covers": STATEMENTS, "fault": FAULTS, "complaint": COMPLAINTS}
TITLES = {"covers": "statements", "fault": "known faults", "complaint": "known complaints"}
_KEY = "onward_covered"


def named(item):
    """What a test says it covers."""
    return {name for mark in MARKS for marker in item.iter_markers(mark) for name in marker.args}


def pytest_collection_modifyitems(config, items):
    """Check and keep what the tests say, before any is deselected."""
    found = set()
    for item in items:
        for mark, known in MARKS.items():
            for marker in item.iter_markers(mark):
                unknown = [name for name in marker.args if name not in known]
                if unknown or not marker.args or marker.kwargs:
                    raise pytest.UsageError(f"{item.nodeid}: {mark}{marker.args} names nothing on the list")
        found |= named(item)
    setattr(config, _KEY, found)
    if hasattr(config, "workeroutput"):
        config.workeroutput[_KEY] = sorted(found)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Another process has collected: every one collects the same."""
    setattr(node.config, _KEY, set(getattr(node, "workeroutput", {}).get(_KEY, ())))


def pytest_terminal_summary(terminalreporter, config):
    """Say what is left over, if everything was asked for."""
    whole = (
        config.args == config.getini("testpaths") and not config.option.keyword and not config.option.markexpr
    )
    covered = getattr(config, _KEY, None)
    if not whole or covered is None:
        return
    for mark, known in MARKS.items():
        left = [name for name in known if name not in covered]
        if left:
            terminalreporter.write_line(f"{TITLES[mark]} that no test covers: {' '.join(left)}")
