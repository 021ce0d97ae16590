"""lm-eval's `local-completions`, unmodified, on a tiny data set of our own.

Its log likelihoods must be those of the model itself: they are compared with prompt scoring
straight from libllama, with the same prefill cuts, to 1e-4.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from onward.engines.llama.binding import Context, Library, Model
from onward.engines.llama.slots import CHUNK

QUESTIONS = [
    {"question": "The capital of France is", "choices": [" Paris", " Rome", " a banana"], "answer": 0},
    {"question": "Two plus two is", "choices": [" five", " four", " blue"], "answer": 1},
    {"question": "The sun rises in the", "choices": [" west", " east", " soup"], "answer": 1},
    {
        "question": "Water freezes at zero degrees",
        "choices": [" Celsius", " Fahrenheit", " yesterday"],
        "answer": 0,
    },
]
TASK = """
task: onward_tiny
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
"""
RUN = """
import json, sys
import lm_eval
from lm_eval.tasks import TaskManager
folder, url = sys.argv[1:]
results = lm_eval.simple_evaluate(
    model="local-completions",
    model_args=dict(model="smollm2-135m-instruct", base_url=url + "/v1/completions", tokenizer_backend="remote",
                    num_concurrent=2, max_length=2048),
    tasks=["onward_tiny"], task_manager=TaskManager(include_path=folder), log_samples=True, bootstrap_iters=0,
)
samples = results["samples"]["onward_tiny"]
json.dump({"acc": results["results"]["onward_tiny"]["acc,none"],
           "likelihoods": [[float(pair[0][0]) for pair in sample["resps"]] for sample in sorted(samples, key=lambda s: s["doc_id"])]},
          open(folder + "/out.json", "w"))
"""


@pytest.fixture(scope="module")
def evaluated(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm_eval")
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    (folder / "onward_tiny.yaml").write_text(TASK.format(data=data))
    (folder / "run.py").write_text(RUN)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(folder / "run.py"), str(folder), server.base_url],
        timeout=300,
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "out.json").read_text())


@pytest.mark.covers("O-1", "TC-9")
def test_log_likelihoods_are_the_models_own(evaluated, gguf, tokenizer):
    model = Model(Library(), str(gguf))
    context = Context(model, sequences=1, length=1024, threads=1, batch=CHUNK)
    for row, likelihoods in zip(QUESTIONS, evaluated["likelihoods"], strict=True):
        for choice, likelihood in zip(row["choices"], likelihoods, strict=True):
            question = tokenizer.encode_prompt(row["question"])
            whole = tokenizer.encode_prompt(row["question"] + choice)
            assert whole[: len(question)] == question
            assert len(whole) <= CHUNK  # one cut, at the start
            context.truncate(0, 0)
            context.decode_chunk(0, whole, 0, outputs="all")
            expected = 0.0
            for position in range(len(question) - 1, len(whole) - 1):
                logits = context.logits(position).astype(np.float64)
                expected += logits[whole[position + 1]] - np.logaddexp.reduce(logits)
            assert likelihood == pytest.approx(expected, abs=1e-4)
    context.close()
    model.close()


def test_the_model_answers_better_than_chance(evaluated):
    assert evaluated["acc"] >= 0.75
