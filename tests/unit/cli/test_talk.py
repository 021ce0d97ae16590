"""`complete` and `chat` against a stand-in for a server."""

import os
import pty
import select
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.unit.cli.conftest import start


def test_complete_prints_the_text_and_a_line_end(onward, stand_in):
    assert onward("complete", "Say") == (0, "Hello\n", "")
    assert stand_in.bodies() == [{"model": "first", "stream": True, "prompt": "Say", "max_tokens": 256}]


def test_complete_sends_what_was_chosen(onward, stand_in):
    onward("complete", "Say", "--model", "m", "--max-tokens", "5", "--temperature", "0.5")
    assert stand_in.bodies() == [
        {"model": "m", "stream": True, "prompt": "Say", "max_tokens": 5, "temperature": 0.5}
    ]


def test_complete_reads_its_prompt_from_the_input(onward, stand_in):
    onward("complete", "-", given="two\nlines\n")
    assert stand_in.bodies()[0]["prompt"] == "two\nlines\n"


def test_complete_prints_pieces_as_they_come(stand_in):
    """The first is there while the second is still being made."""
    stand_in.hold = threading.Event()
    process = start("complete", "Say")
    try:
        assert process.stdout.read(3) == "Hel"
        assert not stand_in.hold.is_set()
    finally:
        stand_in.hold.set()
        output, _ = process.communicate(timeout=60)
    assert output == "lo\n"
    assert process.returncode == 0


def test_chat_answers_one_message(onward, stand_in):
    assert onward("chat", "Hi", "--system", "Be brief.") == (0, "Hello\n", "")
    assert stand_in.bodies() == [
        {
            "model": "first",
            "stream": True,
            "max_tokens": 1024,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        }
    ]


def test_chat_answers_each_line_of_its_input(onward, stand_in):
    """Earlier turns are sent along; blank lines are none."""
    assert onward("chat", given="one\n\ntwo") == (0, "Hello\nHello\n", "")
    assert [turn["content"] for turn in stand_in.bodies()[1]["messages"]] == ["one", "Hello", "two"]


@pytest.mark.parametrize("command", [("complete", "x"), ("chat", "x"), ("chat",)], ids=" ".join)
@pytest.mark.parametrize(
    "case",
    [
        ("refusal", (400, {"error": {"message": "prompt is\nempty"}}), "prompt is empty"),
        ("refusal", (502, b"<html>"), "answered 502; check that --url names an OpenAI base URL"),
        ("refusal", (500, [1]), "answered 500; check that --url names an OpenAI base URL"),
        ("ending", b"", "the answer was cut off; try again"),
        ("ending", b'data: {"error": {"message": "the engine died"}}\n\n', "the engine died"),
        ("ending", b"data: {nonsense\n\n", "the connection to"),
        ("models", [], "the server has no model for this key"),
    ],
)
def test_a_failure_is_one_line(onward, stand_in, command, case):
    setting, value, line = case
    setattr(stand_in, setting, value)
    code, _, errors = onward(*command, given="x\n")
    assert code == 1
    assert line in errors
    assert errors.count("\n") == 1


def test_no_server_says_how_to_start_one(onward):
    code, output, errors = onward("complete", "x", "--url", "http://127.0.0.1:9")
    assert (code, output) == (1, "")
    assert errors == (
        "onward: no server answers at http://127.0.0.1:9; start one (`onward serve`), or name another with --url\n"
    )


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "", "http://"])
def test_a_wrong_address_is_said(onward, url):
    code, _, errors = onward("complete", "x", "--url", url)
    assert code == 1
    assert "is no address; write --url http://HOST:PORT/v1" in errors


def test_an_address_without_a_path_means_v1(onward, stand_in):
    assert onward("complete", "x", "--url", stand_in.origin)[0] == 0


def test_sends_the_key_that_is_named(onward, stand_in):
    onward("complete", "x", "--api-key-env", "MY_KEY", env={"MY_KEY": "on-secret"})
    onward("complete", "x", env={"ONWARD_API_KEY": "on-other"})
    onward("complete", "x")
    keys = [key for method, _, _, key in stand_in.asked if method == "POST"]
    assert keys == ["Bearer on-secret", "Bearer on-other", None]


def test_a_key_that_is_not_set_is_said(onward, stand_in):
    code, _, errors = onward("complete", "x", "--api-key-env", "NOT_SET_AT_ALL")
    assert code == 1
    assert "NOT_SET_AT_ALL is not set" in errors
    assert stand_in.asked == []


def test_waits_until_the_server_is_ready(onward, stand_in):
    stand_in.ready_after = 3
    assert onward("complete", "x", "--wait", "30") == (0, "Hello\n", "")
    assert [path for _, path, _, _ in stand_in.asked[:4]] == ["/readyz"] * 4


def test_waits_no_longer_than_it_was_told(onward, stand_in):
    stand_in.ready_after = 10_000
    code, _, errors = onward("complete", "x", "--wait", "0.5")
    assert code == 1
    assert "is not ready after 0.5 s (the engine is starting); look at its log" in errors


def test_an_interrupt_ends_cleanly(stand_in):
    stand_in.hold = threading.Event()
    process = start("complete", "Say")
    try:
        assert process.stdout.read(3) == "Hel"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        stand_in.hold.set()
    assert (process.returncode, output, errors) == (1, "\n", "onward: interrupted\n")


class Terminal:
    """A `chat` that believes somebody types."""

    def __init__(self):
        self.pid, self.screen = pty.fork()
        if not self.pid:
            os.execv(sys.executable, [sys.executable, "-m", "onward.cli.main", "chat"])  # noqa: S606
        self.seen = b""

    def type(self, text):
        os.write(self.screen, text)

    def wait_for(self, text, count=1):
        end = time.monotonic() + 60
        while self.seen.count(text) < count:
            assert time.monotonic() < end, self.seen
            if select.select([self.screen], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.screen, 4096)
                except OSError as error:
                    raise AssertionError(self.seen) from error

    def wait_until_it_waits(self):
        """Between its prompt and its wait for keys, Python forgets a Ctrl-C until the next key."""
        if sys.platform != "linux":
            return
        stat = Path(f"/proc/{self.pid}/stat")
        end = time.monotonic() + 60
        while stat.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < end
            time.sleep(0.01)

    def exit_code(self):
        end = time.monotonic() + 60
        while (waited := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.01)
        os.close(self.screen)
        return os.waitstatus_to_exitcode(waited[1])


@pytest.mark.parametrize("ending", [b"\x03", b"\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_chat_at_a_terminal(stand_in, ending):
    """Asks, answers, and ends with exit code 0; steering characters do not reach the screen."""
    stand_in.pieces = ["Hel", "\x1b]0;evil\x07lo"]
    terminal = Terminal()
    terminal.wait_for(b"> ")
    terminal.type(b"Hi\n")
    terminal.wait_for(b"Hel]0;evillo")
    terminal.wait_for(b"> ", 2)
    terminal.wait_until_it_waits()
    terminal.type(ending)
    assert terminal.exit_code() == 0
    assert b"Traceback" not in terminal.seen


def test_an_interrupt_at_a_terminal_stops_one_answer(stand_in):
    """The next message goes on without the one that was stopped."""
    stand_in.hold = threading.Event()
    terminal = Terminal()
    terminal.wait_for(b"> ")
    terminal.type(b"one\n")
    terminal.wait_for(b"Hel")
    terminal.type(b"\x03")
    terminal.wait_for(b"forgotten")
    stand_in.hold.set()
    terminal.wait_for(b"> ", 2)
    terminal.type(b"two\n")
    terminal.wait_for(b"Hello")
    terminal.wait_for(b"> ", 3)
    terminal.type(b"\x04")
    assert terminal.exit_code() == 0
    assert [turn["content"] for turn in stand_in.bodies()[1]["messages"]] == ["two"]


def test_https_to_a_server_of_plain_http_says_so(onward, stand_in):
    url = stand_in.origin.replace("http:", "https:") + "/v1"
    for wait in ([], ["--wait", "0.1"]):
        code, output, errors = onward("complete", "x", "--url", url, *wait)
        assert (code, output) == (1, "")
        assert "TLS" in errors
        assert errors.count("\n") == 1
    assert "http://" in onward("complete", "x", "--url", url)[2]


def test_the_longest_answer_is_the_one_of_the_api(onward):
    from onward.dialects.fields import MOST_TOKENS

    code, _, errors = onward("complete", "x", "--max-tokens", str(MOST_TOKENS + 1))
    assert code == 2
    assert f"from 1 to {MOST_TOKENS}" in errors
