"""paho-mqtt as tests use it: what it was told is in queues."""

import queue
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.integration.endpoint_lab import PATIENCE_S, Lab, context_of, is_tls


class Paho:
    """paho-mqtt with its own thread; what happens is in queues."""

    def __init__(
        self,
        served: Lab,
        client_id: str,
        *,
        listener: str = "mqtt",
        version: int = 5,
        certificate: str = "",
        will: tuple[str, bytes] | None = None,
        will_delay_s: int = 0,
        clean: bool = True,
        expiry_s: int = 0,
        receive_maximum: int = 0,
        keepalive_s: int = 30,
        connects: bool = True,
    ) -> None:
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.acks: queue.Queue[int] = queue.Queue()
        self.suback: queue.Queue[list[int]] = queue.Queue()
        self.ended: queue.Queue[int] = queue.Queue()
        self._connected: queue.Queue[tuple[Any, int, Any]] = queue.Queue()
        transport = "websockets" if listener in {"ws", "wss"} else "tcp"
        clean_311 = {} if version == 5 else {"clean_session": clean}
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id,
            protocol=version,
            transport=transport,
            reconnect_on_failure=False,
            **clean_311,
        )
        if transport == "websockets":
            self.client.ws_set_options("/mqtt")
        if is_tls(listener):
            self.client.tls_set_context(context_of(served, certificate or client_id))
        if will is not None:
            properties = Properties(PacketTypes.WILLMESSAGE) if version == 5 else None
            if properties is not None:
                properties.WillDelayInterval = will_delay_s
            self.client.will_set(*will, qos=1, properties=properties)
        self.client.on_connect = lambda _c, _u, flags, code, properties: self._connected.put(
            (flags, code.value, properties)
        )
        self.client.on_message = lambda _c, _u, message: self.messages.put(message)
        self.client.on_publish = lambda _c, _u, _mid, code, _p: self.acks.put(code.value)
        self.client.on_subscribe = lambda _c, _u, _mid, codes, _p: self.suback.put(
            [code.value for code in codes]
        )
        self.client.on_disconnect = lambda _c, _u, _f, code, _p: self.ended.put(code.value)
        connect: dict[str, Any] = {}
        if version == 5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = expiry_s
            if receive_maximum:
                properties.ReceiveMaximum = receive_maximum
            connect = {"properties": properties, "clean_start": clean}
        self.client.connect("127.0.0.1", served.ports[listener], keepalive_s, **connect)
        self.client.loop_start()
        self.flags, self.code, self.properties = self._connected.get(timeout=PATIENCE_S)
        assert (self.code == 0) is connects, self.code

    def __enter__(self) -> "Paho":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def subscribe(self, topic: str, qos: int = 1, **options: Any) -> list[int]:
        if options:
            self.client.subscribe(topic, options=SubscribeOptions(qos=qos, **options))
        else:
            self.client.subscribe(topic, qos)
        return self.suback.get(timeout=PATIENCE_S)

    def publish(
        self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False, **fields: Any
    ) -> int:
        """Publish and return the reason code of the PUBACK; 0 at QoS 0."""
        properties = None
        if fields:
            properties = Properties(PacketTypes.PUBLISH)
            for key, value in fields.items():
                setattr(properties, key, value)
        self.client.publish(topic, payload, qos, retain, properties)
        return self.acks.get(timeout=PATIENCE_S)

    def message(self, timeout_s: float = PATIENCE_S) -> paho.MQTTMessage:
        return self.messages.get(timeout=timeout_s)

    def hears_nothing(self, within_s: float = 0.3) -> bool:
        try:
            self.message(within_s)
        except queue.Empty:
            return True
        return False

    def vanish(self) -> None:
        """Break the connection without a DISCONNECT."""
        self.client.loop_stop()
        self.client.socket().close()
