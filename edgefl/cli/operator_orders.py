"""Wait for what a gateway makes of an order, and turn it into output and exit code."""

import argparse
import json
import sys
from pathlib import Path

from edgefl.errors import ConfigError, TransportError

_WAIT_S = 10.0


def require_gateway(state_dir: Path) -> None:
    """Refuse a folder that no gateway was set up in, before an order is left there.

    Raises:
        ConfigError: E-NO-GATEWAY-CONFIG.
    """
    from broker.config import CONFIG_FILE

    if not (state_dir / CONFIG_FILE).exists():
        raise ConfigError(
            "E-NO-GATEWAY-CONFIG",
            f"a gateway that was set up in {state_dir}",
            f"no {CONFIG_FILE}",
            "'edgefl gateway init' sets one up; --state names its folder",
        )


def report_order(options: argparse.Namespace, state_dir: Path, order_id: str) -> int:
    """Say what became of an order.

    Raises:
        ConfigError: The gateway refused it.
        TransportError: E-GATEWAY-DOWN, none took it within ten seconds.
    """
    from broker.orders import OrderFolder

    wait_s = _WAIT_S if (state_dir / "gateway.json").exists() else 0.0
    done = OrderFolder(state_dir).wait(order_id, wait_s)
    if done is None:
        raise TransportError(
            "E-GATEWAY-DOWN",
            f"a gateway that runs in {state_dir}",
            "none that took the order",
            "it is kept, and carried out when the gateway starts",
        )
    if not done.is_done:
        raise ConfigError(done.code, "an order that the gateway can carry out", done.text)
    sys.stdout.write((json.dumps({"done": done.text}) if options.json else done.text) + "\n")
    return 0
