"""Settings of the gateway: addresses of providers, and when deployments rest."""

import pytest

from onward.providers.openai import OpenAiProvider
from onward.providers.replicas import Replicas
from onward.routing.breaker import Policy
from onward.wiring import config
from onward.wiring.providers import policy_of, provider_of, providers_of

MODEL = """
[[models]]
id = "m"
  [[models.deployments]]
  name = "bought"
  provider = "up"
  model = "theirs"
"""


@pytest.fixture
def faults(tmp_path):
    """The faults of a provider with these lines."""

    def check(lines: str, more: str = "") -> list[str]:
        path = tmp_path / "onward.toml"
        path.write_text(f'[[providers]]\nname = "up"\nprotocol = "openai"\n{lines}\n{MODEL}\n{more}')
        return config.check(path)

    return check


def test_one_address_or_several(faults):
    assert faults('base_url = "http://a/v1"') == []
    assert faults('base_urls = ["http://a/v1"]') == []
    assert faults('base_urls = ["http://a/v1", "https://b:8443/v1"]') == []
    assert faults("") == ["providers[0].base_url: is missing"]
    assert faults("base_urls = []") == ["providers[0].base_url: is missing"]
    assert faults('base_url = "http://a/v1"\nbase_urls = ["http://b/v1"]') == [
        "providers[0].base_urls: not beside base_url; write all addresses into base_urls"
    ]


def test_each_address_is_looked_at(faults):
    urls = [
        "http://a/v1",
        "ftp://a/v1",
        "http://u:p@b/v1",
        "http://c/v1?key=1",
        "http://[::1/v1",
        "http://d/v1/chat",
        "http://a/v1/",
    ]
    wrong = "must be an address such as https://api.example.com/v1, and hold no secret"
    assert faults(f"base_urls = {urls}") == [
        *[f"providers[0].base_urls[{n}]: {wrong}" for n in range(1, 5)],
        "providers[0].base_urls[5]: must end above the routes, as in https://api.example.com/v1",
        "providers[0].base_urls[6]: stands there twice",
    ]


def test_when_deployments_rest(faults):
    url = 'base_url = "http://a/v1"'
    assert faults(url, "[routing]\nbreaker_failures = 0\nretry_after_most_s = 0") == []
    assert faults(url, "[routing]\nbreaker_open_s = 300") == [
        "routing.breaker_open_most_s: is less than breaker_open_s (300)"
    ]
    assert faults(url, "[routing]\nbreaker_failures = -1\nbreaker_open_s = 0") == [
        "routing.breaker_failures: must be at least 0, not -1",
        "routing.breaker_open_s: must be more than 0, not 0",
    ]


def test_the_defaults_are_the_policys_own():
    assert policy_of(config.Routing()) == Policy()


async def test_what_a_provider_becomes():
    one = config.Provider(name="one", protocol="openai", base_url="http://a/v1")
    several = config.Provider(name="several", protocol="anthropic", base_urls=["http://a/v1", "http://b/v1"])
    made = providers_of(config.Config(providers=[one, several]))
    assert isinstance(made["one"], OpenAiProvider)
    assert made["one"].status().replicas == ()
    assert isinstance(made["several"], Replicas)
    assert (made["several"].name, made["several"].surfaces) == ("several", {"messages"})
    assert [replica.name for replica in made["several"].status().replicas] == ["1", "2"]
    for provider in (*made.values(), provider_of(several)):
        await provider.close()


def test_a_model_of_a_provider_may_take_images(tmp_path):
    path = tmp_path / "onward.toml"
    text = MODEL.replace('id = "m"', 'id = "m"\ncapabilities = ["chat", "tools", "images"]')
    path.write_text(f'[[providers]]\nname = "up"\nprotocol = "openai"\nbase_url = "http://a/v1"\n{text}')
    assert config.check(path) == []
