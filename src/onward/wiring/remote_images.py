"""What fetches images by their address, if the config says so."""

import ipaddress

from onward.core.remote_image import RemoteImages
from onward.dialects.fields import LARGEST_IMAGE
from onward.wiring.config import Images


def remote_images(settings: Images) -> RemoteImages | None:
    """The one of this process; None: no image is fetched."""
    if not settings.fetch:
        return None
    # an HTTP client and its certificates, only where they are used
    from onward.sources.download import tls_context  # noqa: PLC0415
    from onward.sources.guarded_get import GuardedGet, Rules  # noqa: PLC0415
    from onward.sources.lookup import resolve  # noqa: PLC0415
    from onward.sources.public_address import Guard  # noqa: PLC0415
    from onward.sources.remote_images import GuardedImages  # noqa: PLC0415

    rules = Rules(
        guard=Guard([ipaddress.ip_network(network) for network in settings.private_networks]),
        ports=frozenset(settings.ports),
        most_redirects=settings.max_redirects,
        connect_s=settings.fetch_timeout_s / 2,
    )
    return GuardedImages(
        GuardedGet(rules, tls_context(), resolve),
        largest=LARGEST_IMAGE,
        most=settings.max_fetches,
        timeout_s=settings.fetch_timeout_s,
    )
