"""What the shell tells the core about enrolment, and what the core asks of the shell."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from broker.claims import Claim


class Verb(StrEnum):
    """What an operator can decide about a board."""

    ACCEPT = "accept"
    REJECT = "reject"
    REVOKE = "revoke"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The operator's decision about one board.

    Attributes:
        order_id: Names the order in its answer.
        fingerprint: What the operator saw on the board; None where nothing was compared.
    """

    order_id: str
    verb: Verb
    device: str
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsChanged:
    """The tokens that there are now."""

    claims: Mapping[str, Claim]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSaid:
    """An order of the operator."""

    order: Order


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthoritiesChanged:
    """The gateway's certificate authority is being replaced, or that has ended."""


EnrolmentEvent = ClaimsChanged | OperatorSaid | AuthoritiesChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDone:
    """What became of an order, for the command that gave it.

    Attributes:
        is_done: False where it was refused.
        code: Error code where it was refused; else empty.
        text: One line.
    """

    order_id: str
    is_done: bool
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationsChanged:
    """Certificates and names that no link may be opened with, and whose links are to be cut.

    Attributes:
        serials: Of certificates that were withdrawn before their end.
        devices: Names of boards and tokens that are out, whatever certificate they show.
    """

    serials: frozenset[int]
    devices: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSession:
    """End a board's link now."""

    device: str
    reason: str


EnrolmentEffect = OrderDone | RevocationsChanged | CutSession
