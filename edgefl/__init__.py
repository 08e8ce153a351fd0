"""Federated learning for battery-powered boards."""

__version__ = "0.1.0"
