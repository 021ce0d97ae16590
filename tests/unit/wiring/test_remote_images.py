"""The `[images]` of a config: what is wrong with one, and what is made of it."""

import pytest

from onward.core.remote_image import RemoteImageError
from onward.wiring import config
from onward.wiring.config import Images
from onward.wiring.remote_images import remote_images
from tests.image_host import ImageHost, answer

ON = "[images]\nfetch = true\n"


@pytest.fixture
def faults(tmp_path):
    """The faults of a config text."""

    def check(text: str) -> list[str]:
        path = tmp_path / "onward.toml"
        path.write_text(text, encoding="utf-8")
        return config.check(path)

    return check


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[images]\nfetch_timeout_s = 5", "images.fetch_timeout_s: only goes with fetch = true"),
        ("[images]\nports = [8080]", "images.ports: only goes with fetch = true"),
        (
            '[images]\nprivate_networks = ["10.0.0.0/8"]',
            "images.private_networks: only goes with fetch = true",
        ),
        ("[images]\nfetch = 1", "images.fetch: must be true or false, not an integer"),
        (ON + "fetch_timeout_s = 0", "images.fetch_timeout_s: must be more than 0, not 0"),
        (ON + "max_redirects = -1", "images.max_redirects: must be at least 0, not -1"),
        (ON + "max_fetches = 0", "images.max_fetches: must be at least 1, not 0"),
        (ON + "ports = []", "images.ports: is empty, so that nothing could be fetched"),
        (ON + "ports = [0]", "images.ports[0]: must be at least 1, not 0"),
        (ON + 'private_networks = ["10.0.0.1/8"]', "images.private_networks[0]: '10.0.0.1/8' is no network"),
        (ON + 'private_networks = ["inside"]', "images.private_networks[0]: 'inside' is no network"),
        (ON + 'private_networks = ["169.254.1.0/24"]', "images.private_networks[0]: 169.254.1.0/24 is never"),
        (ON + 'private_networks = ["fd00:ec2::254"]', "images.private_networks[0]: fd00:ec2::254 is never"),
        (ON + '[dialects]\ntinker = "/v1"', "images.fetch: no dialect that is served here takes addresses"),
    ],
)
def test_faults(faults, text: str, fault: str):
    (found,) = faults(text)
    assert found.startswith(fault)


def test_what_may_be_set(faults):
    assert faults(ON + 'max_redirects = 3\nports = [443, 8443]\nprivate_networks = ["10.1.0.0/16"]') == []
    assert faults("[images]\nfetch = false") == []


async def test_what_a_config_says_is_what_is_fetched():
    assert remote_images(Images()) is None
    async with ImageHost({"/a": answer(b"a")}).listening() as host:
        settings = {"ports": [host.port], "max_fetches": 1}
        allowing = remote_images(Images(fetch=True, private_networks=["127.0.0.1/32"], **settings))
        assert allowing is not None
        async with allowing.fetched([host.url("/a")]) as found:
            assert found == {host.url("/a"): b"a"}
        closed = remote_images(Images(fetch=True, **settings))
        assert closed is not None
        for images, addresses in (
            (closed, [host.url("/a")]),
            (closed, [host.url("/a", "localhost")]),
            (allowing, [host.url("/a"), host.url("/b")]),
            (allowing, ["http://127.0.0.1/a"]),
        ):
            with pytest.raises(RemoteImageError):
                async with images.fetched(addresses):
                    pass
        assert host.paths == ["/a"]
