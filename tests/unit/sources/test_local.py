"""Models that lie on this machine."""

import pytest

from onward.sources import SourceError, check_source, fetch
from onward.sources.choose import choose


def test_a_file_is_its_absolute_path(tmp_path, monkeypatch):
    (tmp_path / "a.gguf").write_bytes(b"GGUF...")
    monkeypatch.chdir(tmp_path)
    assert fetch("a.gguf") == tmp_path / "a.gguf"


def test_a_folder_means_its_only_model(tmp_path):
    """A projector beside it is no model."""
    (tmp_path / "a.gguf").write_bytes(b"GGUF...")
    (tmp_path / "mmproj-a.gguf").write_bytes(b"GGUF...")
    (tmp_path / "notes.txt").write_text("x")
    assert fetch(str(tmp_path)) == tmp_path / "a.gguf"


def test_a_home_folder_is_spelled_out(tmp_path, monkeypatch):
    (tmp_path / "a.gguf").write_bytes(b"GGUF...")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetch("~/a.gguf") == tmp_path / "a.gguf"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: None, "there is no file"),
        (lambda path: path.mkdir(), "holds no .gguf model file"),
        (lambda path: path.write_bytes(b"GGU"), "is not a GGUF model file"),
        (lambda path: path.write_bytes(b""), "is not a GGUF model file"),
    ],
)
def test_says_what_is_wrong(tmp_path, make, words):
    path = tmp_path / "x.gguf"
    make(path)
    for look in (fetch, check_source):
        with pytest.raises(SourceError, match=words) as refused:
            look(str(path))
        assert "\n" not in str(refused.value)


def test_several_models_are_listed():
    with pytest.raises(SourceError, match=r"here holds 2 models \(a.gguf, b.gguf\); name one"):
        choose(["b.gguf", "a.gguf"], "here", "name one")


def test_a_long_list_is_cut():
    with pytest.raises(SourceError, match="and 88 more"):
        choose([f"{n:03}.gguf" for n in range(100)], "here", "name one")


def test_the_preferred_quantization_is_taken_from_many():
    files = ["m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"]
    assert choose(files, "here", "name one") == ["m-Q4_K_M.gguf"]


def test_the_parts_of_a_split_model_go_together():
    files = ["m-00002-of-00002.gguf", "m-00001-of-00002.gguf"]
    assert choose(files, "here", "name one") == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    with pytest.raises(SourceError, match="holds 1 of the 2 parts"):
        choose(files[:1], "here", "name one")
