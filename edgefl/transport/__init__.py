"""Links to a broker: the interface, MQTT through paho, and an in-process broker for tests."""
