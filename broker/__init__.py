"""The gateway: runs rounds, keeps the ledger and the model, embeds the MQTT broker."""
