"""Write tests/data/kimi.json: prompts of the Kimi models whose templates are not found by the tests.

Run it with a Python that has the project and its test dependencies, from the root of the
repository, and with a folder of official chat templates, named as their repositories:

    PYTHONPATH=src:. python scripts/kimi_goldens.py FOLDER
"""

import json
import sys
from pathlib import Path

from tests.unit.rendering.families import test_kimi

from onward.core.request import ChatRequest

TARGET = Path(__file__).parent.parent / "tests" / "data" / "kimi.json"
TEMPLATES = {
    "kimi-k2": "moonshotai-Kimi-K2-Instruct-0905.jinja",
    "kimi-k2-thinking": "moonshotai-Kimi-K2-Thinking.jinja",
    "kimi-k2.7": "moonshotai-Kimi-K2.7-Code.jinja",
}


def main(folder: Path) -> None:
    prompts: dict[str, dict[str, str]] = {}
    for family, name in TEMPLATES.items():
        template = (folder / name).read_text(encoding="utf-8")
        prompts[family] = {
            title: test_kimi.official_text(template, ChatRequest(model="m", **conversation))
            for title, conversation in test_kimi.CONVERSATIONS.items()
        }
    TARGET.write_text(json.dumps(prompts, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
