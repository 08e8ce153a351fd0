"""Every exception that edgefl raises on purpose.

Each carries a stable code and three short phrases: what was expected, what was found, and what to
    do. The
command line prints them as one line; `--debug` adds the traceback.
"""

from typing import ClassVar


class EdgeflError(Exception):
    """Base of all errors with a message for the user.

    Args:
        code: Stable identifier, `E-` and upper-case words, for searching and scripting.
        expected: What would have been right.
        found: What was there instead. Never holds secret bytes.
        advice: What the user can do.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, expected: str, found: str, advice: str = "") -> None:
        """Store the parts; the text is made when the error is shown."""
        super().__init__(code, expected, found, advice)
        self.code = code
        self.expected = expected
        self.found = found
        self.advice = advice

    def __str__(self) -> str:
        """Return the one line that is shown to the user."""
        line = f"{self.code}: expected {self.expected}; found {self.found}"
        return _printable(f"{line}; {self.advice}" if self.advice else line)


class ConfigError(EdgeflError):
    """A setting, argument or file given by the user is not usable."""

    exit_code = 2


class DataError(ConfigError):
    """The training data is empty, malformed or not finite."""


class Cancelled(EdgeflError):
    """The caller took the work back before it was done."""

    exit_code = 130


class WireError(EdgeflError):
    """Bytes from a peer do not follow the wire format."""

    exit_code = 6


class ProtocolError(EdgeflError):
    """A step of the round protocol was broken."""


class LocalProtocolError(ProtocolError):
    """This process called the protocol in a wrong way."""


class RemoteProtocolError(ProtocolError):
    """A peer broke the protocol: a bad signature, a contradictory list, a plan below a floor."""

    exit_code = 6


class SecAggError(EdgeflError):
    """Secure aggregation cannot go on."""


class ShareError(SecAggError):
    """A Shamir share is malformed, duplicated or wrong."""

    exit_code = 6


class PrivacyError(EdgeflError):
    """A privacy parameter is unusable or a guarantee cannot be kept."""

    exit_code = 3


class BudgetExhausted(PrivacyError):
    """The next release would cross the privacy budget."""


class PolicyRefusal(EdgeflError):
    """Whoever may decide said no."""

    exit_code = 3


class TrainingError(EdgeflError):
    """A model cannot be prepared, loaded or trained."""

    exit_code = 2


class TransportError(EdgeflError):
    """The broker cannot be reached or does not behave as one of ours."""

    exit_code = 5


class StorageError(EdgeflError):
    """Stored state is damaged, locked or cannot be written."""

    exit_code = 6


class EnvironmentProblem(EdgeflError):
    """The machine lacks something: a package, a free port, memory, a file descriptor."""

    exit_code = 4


def first_known(group: ExceptionGroup[Exception]) -> Exception:
    """Return the error of a group to show to the user: the first of ours, else the first."""
    flat: list[Exception] = []
    pending: list[Exception] = [group]
    while pending:
        error = pending.pop(0)
        if isinstance(error, ExceptionGroup):
            pending.extend(error.exceptions)
        else:
            flat.append(error)
    return next((error for error in flat if isinstance(error, EdgeflError)), flat[0])


def _printable(line: str) -> str:
    """Escape what would break the line or steer a terminal: a name in it may be a peer's choice."""
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in line
    )
