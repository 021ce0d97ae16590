"""What operators need of a config: a token that is long enough, and a config that commands can read."""

import pytest

from onward.wiring import config
from onward.wiring.config import ConfigError
from onward.wiring.desk import read_config


@pytest.mark.parametrize(
    ("token", "good"),
    [
        ("", True),
        ("x" * 16, True),
        ("x" * 15, False),
        ("x" * 15 + " ", False),
        ("x" * 15 + "\t", False),
        ("ü" * 16, False),
    ],
)
@pytest.mark.parametrize("variable", ["ONWARD_ADMIN_TOKEN", "ANOTHER"])
def test_the_admin_token_is_long_and_plain(tmp_path, monkeypatch, token, good, variable):
    monkeypatch.delenv("ONWARD_ADMIN_TOKEN", raising=False)
    monkeypatch.setenv(variable, token)
    path = tmp_path / "x.toml"
    path.write_text(f'[server]\nadmin_token_env = "{variable}"\n')
    faults = config.check(path)
    if good:
        assert faults == []
    else:
        [fault] = faults
        assert fault.startswith(
            f"server.admin_token_env: the token in {variable} must have 16 or more visible"
        )
        assert token not in fault


def test_commands_need_no_secret_of_the_server(tmp_path):
    """And no model file of it; but what they work on must be right."""
    path = tmp_path / "x.toml"
    path.write_text("""
        [[providers]]
        name = "up"
        protocol = "openai"
        base_url = "https://up.example/v1"
        api_key_env = "A_VARIABLE_OF_THE_SERVER_ALONE"
        [[models]]
        id = "m"
        checkpoints = "nowhere"
        deployments = [{ name = "d", engine = "llama", source = "nowhere.gguf" }]
        [[keys]]
        name = "k"
        secret_env = "A_VARIABLE_OF_THE_SERVER_ALONE"
    """)
    assert len(config.check(path)) == 4
    read = read_config(str(path))
    assert read.store.url == f"sqlite:{tmp_path / 'onward.db'}"
    assert [model.id for model in read.models] == ["m"]
    path.write_text(path.read_text() + "tenant = 'nobody'\nmonthly_cap = 'x'\n[sever]\n")
    with pytest.raises(ConfigError) as caught:
        read_config(str(path))
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        "sever",
        "keys[0].tenant",
        "keys[0].monthly_cap",
    ]


def test_without_a_config_it_is_the_default_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    read = read_config(None)
    assert read.store.url == f"sqlite:{tmp_path / 'onward.db'}"
    assert read.models == [config.default_model()]
