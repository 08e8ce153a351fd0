"""What the gateway keeps of claim tokens: one file each, without the token's secret.

A file holds what the gateway needs to know a token by: its certificate, how often it may be used,
until when. The token itself is shown once and kept nowhere.
"""

import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from edgefl.errors import ConfigError, StorageError
from edgefl.protocol.topics import is_claim
from edgefl.storage.files import read_file, replace_file

_LOGGER = logging.getLogger(__name__)

FOLDER: Final = "claims"
MAX_USES: Final = 10_000
MAX_CLAIMS: Final = 1_000
_MAX_FILE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the gateway knows of a token.

    Attributes:
        claim: Its name, which is the name in its certificate.
        certificate: DER, hexadecimal.
        serial: Of the certificate, hexadecimal.
        uses: How many boards it may let in.
        expires_s: Seconds since 1970 after which it lets nobody in.
        created_s: When it was made.
        is_preauthorised: Whoever comes with it is accepted without asking.
        fingerprints: Only boards with these identity keys are accepted without asking.
        is_revoked: It lets nobody in any more.
    """

    claim: str
    certificate: str
    serial: str
    uses: int
    expires_s: int
    created_s: int
    is_preauthorised: bool
    fingerprints: tuple[str, ...]
    is_revoked: bool = False

    def __post_init__(self) -> None:
        """Check what a hand-edited file could get wrong."""
        if not is_claim(self.claim) or not 1 <= self.uses <= MAX_USES:
            raise ConfigError("E-CLAIM-FILE", "a claim's name and its uses", self.claim[:80])
        try:
            bytes.fromhex(self.certificate)
            int(self.serial, 16)
        except ValueError:
            raise ConfigError("E-CLAIM-FILE", "hexadecimal digits", "other text") from None

    def accepts_at_once(self, fingerprint: str, *, was_revoked: bool) -> bool:
        """Tell whether a board with this identity key need not wait for the operator.

        Args:
            fingerprint: Of its identity key.
            was_revoked: Its name was put out before. Whoever was put out may still have the token,
                so only a key that the operator has listed comes back by itself.
        """
        return fingerprint in self.fingerprints or (self.is_preauthorised and not was_revoked)


def keep_claim(state_dir: Path, claim: Claim) -> None:
    """Write a claim's file; a running gateway notices it.

    Raises:
        ConfigError: E-CLAIMS, there are too many.
        StorageError: It cannot be written.
    """
    folder = state_dir / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{claim.claim}.json"
        if not path.exists() and len(list(folder.glob("*.json"))) >= MAX_CLAIMS:
            raise ConfigError(
                "E-CLAIMS", f"at most {MAX_CLAIMS} tokens", "one more", f"remove files in {folder}"
            )
        replace_file(path, (json.dumps(asdict(claim), indent=1) + "\n").encode(), mode=0o600)
    except OSError as error:
        raise StorageError(
            "E-CLAIM-FILE", f"a file in {folder} that can be written", error.strerror or str(error)
        ) from error


def read_claims(state_dir: Path) -> dict[str, Claim]:
    """Return the claims by name; a damaged file lets nobody in, and is named in the log."""
    claims: dict[str, Claim] = {}
    for path in sorted((state_dir / FOLDER).glob("claim-*.json")):
        try:
            fields = json.loads(read_file(path, _MAX_FILE_BYTES))
            fields["fingerprints"] = tuple(fields["fingerprints"])
            claim = Claim(**fields)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, ConfigError):
            _LOGGER.warning("a claim's file cannot be read, its token lets nobody in: %s", path)
            continue
        claims[claim.claim] = claim
    return claims


def revoke_claim(state_dir: Path, name: str) -> Claim:
    """Let nobody in any more with a token.

    Raises:
        ConfigError: E-NO-CLAIM, there is none of this name.
    """
    claim = read_claims(state_dir).get(name)
    if claim is None:
        raise ConfigError(
            "E-NO-CLAIM",
            "a token's name, as 'edgefl gateway token list' shows it",
            repr(name[:80]),
        )
    revoked = replace(claim, is_revoked=True)
    keep_claim(state_dir, revoked)
    return revoked
