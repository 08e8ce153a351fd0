"""Where to look for a gateway that says that it has moved: there first, and where it was before."""

import logging
from collections.abc import Sequence

from edgefl.errors import ConfigError
from edgefl.transport.broker_url import MAX_BROKERS, BrokerAddress, is_loopback, parse_broker_url

_LOGGER = logging.getLogger(__name__)


def with_moved(
    brokers: tuple[BrokerAddress, ...], moved_to: Sequence[str]
) -> tuple[BrokerAddress, ...]:
    """Return addresses to try, in this order.

    Args:
        brokers: Those that this device was set up with; they stay as a way back.
        moved_to: URLs that the gateway has signed. TLS is neither given up nor made up for them,
            and without it none leads off this machine.
    """
    found = [address for url in moved_to if (address := _usable(url, brokers[0])) is not None]
    return tuple(dict.fromkeys([*found, *brokers]))[:MAX_BROKERS]


def _usable(url: str, known: BrokerAddress) -> BrokerAddress | None:
    try:
        address = parse_broker_url(url)
    except ConfigError as error:
        _LOGGER.warning("not followed to where the gateway says that it is: %s", error)
        return None
    is_safe = address.scheme.has_tls or is_loopback(address.host)
    if address.scheme.has_tls == known.scheme.has_tls and is_safe:
        return address
    _LOGGER.warning("not followed to %s, where the gateway says that it is: TLS differs", address)
    return None
