"""Sizes that bound every message."""

KEY_BYTES = 32
DIGEST_BYTES = 32
SHARE_BYTES = 40
SIGNATURE_BYTES = 64
SEALED_BYTES = 24 + 2 * SHARE_BYTES + 16
"""Nonce, the two shares, and the tag of XChaCha20-Poly1305."""
SEALED_SHARE_BYTES = 24 + SHARE_BYTES + 16
"""The same around one share."""
MAX_COHORT = 16_384
"""Members of a key epoch, and so of a cohort; 1 + position fits a Shamir point."""
MAX_POPULATION = 65_536
MAX_ATTEMPT = 1_000_000
MAX_KEY_EPOCH = 2**53
MAX_MASK_KEYS = 1024
"""One-time mask keys under one bundle."""
MOST_RECORDS_A_DAY = 64
"""Key epochs whose record a device answers in 24 hours, where it limits grinding."""
