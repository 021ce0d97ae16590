"""Which tests follow each other, in one process where there are several.

Those of a file do, for what its fixtures made. Those that talk to the same server or read the same
official tokenizer do too, whichever file they are of: either takes seconds to make. What takes longest
begins first, so that no process ends long after the others.
"""

import re

import pytest

SERVERS = {
    "server": r"tests/(?:clients/|faults/test_(?:inputs|output|scoring)|dialects/test_tokens_onward|project/test_documents)",
    "two_mounts": "tests/dialects/test_tinker_(?:chat|completions|pages)",
}
"""By fixture of the whole session, the files of tests that use it."""
READERS = re.compile(r"tests/(?:unit/rendering/(?:families/test_|test_official_)|laws/test_parse)")
"""Files of tests that read official tokenizers."""
TOKENIZERS = {
    "deepseek": "deepseek",
    "gemma": "gemma",
    "glm": "glm|minimax",
    "gpt-oss": "gpt-?oss",
    "inkling": "inkling",
    "kimi": "kimi",
    "llama": r"llama-?[23]",
    "mistral": "mistral|ministral|tekken",
    "qwen3.5": r"qwen3?\.?[5-9]",
    "qwen3": "qwen",
    "smollm": "smollm",
}
"""By a name, what families say that are read with it; the first that fits."""
LONG = (
    "tests/contract/test_checkpoints.py",
    "tests/contract/test_llama_exact.py",
    "tests/http/test_processes.py",
    "tests/project/test_soak.py",
)
"""Files that take longest."""


def company(nodeid):
    """What a test shares a process with: a name that all of them have."""
    path, _, test = nodeid.partition("::")
    for server, files in SERVERS.items():
        if re.match(files, path):
            return server
    if READERS.match(path):
        said = f"{path.rpartition('/')[2].replace('_', '-')} {test.partition('[')[2]}"
        for name, spelled in TOKENIZERS.items():
            if re.search(spelled, said):
                return f"the tokenizer of {name}"
    return path


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Put each test beside its company, and the long ones first; leave the order as it is otherwise."""
    first = {path: place - len(LONG) for place, path in enumerate(LONG)}
    for place, item in enumerate(items):
        first.setdefault(company(item.nodeid), place)
    items.sort(key=lambda item: first[company(item.nodeid)])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """For `--dist loadfile`: companies instead of files, in the order above."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Companies(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return company(nodeid)

    config.option.loadscopereorder = False
    return Companies(config, log)
