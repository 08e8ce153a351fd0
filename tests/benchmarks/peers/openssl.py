"""Speed of AES-128-CTR by OpenSSL's own command, as it prints it."""

import re
import shutil
import subprocess

BLOCK_BYTES = 16_384
_FIGURE = re.compile(r"^AES-128-CTR\s+(\d+(?:\.\d+)?)k\s*$", re.MULTILINE | re.IGNORECASE)


def parse_speed(output: str) -> float:
    """Return the GB/s (10^9 bytes) of a run over one block size.

    Args:
        output: What `openssl speed` printed.

    Raises:
        ValueError: There is no such line, or more than one figure in it.
    """
    found = _FIGURE.search(output)
    if found is None:
        raise ValueError(f"no line 'AES-128-CTR <figure>k' in: {output[-200:]!r}")
    return float(found.group(1)) * 1e3 / 1e9


def measure(seconds: int = 1) -> float:
    """Return the GB/s of user time that one core encrypts.

    Raises:
        FileNotFoundError: There is no openssl.
    """
    finished = subprocess.run(
        f"{_program()} speed -evp aes-128-ctr -bytes {BLOCK_BYTES} -seconds {seconds}".split(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return parse_speed(finished.stdout)


def version() -> str:
    """Return the version line."""
    finished = subprocess.run([_program(), "version"], capture_output=True, text=True, check=True)
    return finished.stdout.strip()


def _program() -> str:
    found = shutil.which("openssl")
    if found is None:
        raise FileNotFoundError("openssl")
    return found
