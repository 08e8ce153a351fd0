"""Secure aggregation: session keys, shares and masks over the native core."""
