"""The systemd unit of an agent: a user of its own, next to no rights, a watchdog, few claims."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl.errors import ConfigError

_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))

_TEMPLATE = """\
# Written by 'edgefl agent install'; change it by a drop-in: systemctl edit {name}
[Unit]
Description=edgefl agent: federated learning on this board
# Neither network nor broker must be there: the agent waits for both, and for the clock.
After=time-sync.target network.target
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
# Bad settings and refusals by the owner's policy do not mend themselves.
Restart=on-failure
RestartPreventExitStatus=2 3
RestartSec=10
TimeoutStartSec=600
TimeoutStopSec=30
# Fed only while the agent's loop turns.
WatchdogSec=300

# Whatever else the board does comes first.
Nice=10
CPUWeight=20
IOWeight=20
MemoryMax=75%
TasksMax=128

DynamicUser=yes
{groups}StateDirectory=edgefl
StateDirectoryMode=0700
RuntimeDirectory={name}
RuntimeDirectoryMode=0755
UMask=0077

ProtectSystem=strict
ProtectHome={home}
{binds}PrivateTmp=yes
PrivateDevices=yes
ProtectHostname=yes
ProtectClock=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectProc=invisible
CapabilityBoundingSet=
AmbientCapabilities=
NoNewPrivileges=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
LockPersonality=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
# MemoryDenyWriteExecute stays off: training libraries may make code at run time.

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a unit is made from.

    Attributes:
        name: Of the service, without `.service`.
        command: Program and arguments, absolute paths.
        readable: Folders with data that the agent reads.
        groups: Further groups, such as `i2c`.

    Raises:
        ConfigError: E-INSTALL-NAME, a word cannot stand in a unit.
    """

    name: str
    command: Sequence[str]
    readable: Sequence[Path] = ()
    groups: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse what systemd would read in another way."""
        for word in (*self.command, *map(str, self.readable)):
            if not word.isprintable() or any(letter in word for letter in "\"'\\ :"):
                raise ConfigError(
                    "E-INSTALL-NAME",
                    "paths without blanks, quotes, colons and backslashes",
                    repr(word)[:120],
                )
        for group in self.groups:
            if not group.replace("-", "").replace("_", "").isalnum():
                raise ConfigError("E-INSTALL-NAME", "names of groups", repr(group)[:80])

    def text(self) -> str:
        """Return the unit file."""
        hidden = [folder for folder in self.readable if is_in_a_home(folder)]
        return _TEMPLATE.format(
            name=self.name,
            command=" ".join(word.replace("%", "%%").replace("$", "$$") for word in self.command),
            groups="".join(f"SupplementaryGroups={group}\n" for group in self.groups),
            # Homes look empty to the service, but for the folders that it needs.
            home="tmpfs" if hidden else "yes",
            binds="".join(
                f"BindReadOnlyPaths=-{str(folder).replace('%', '%%')}\n" for folder in hidden
            ),
        )


def is_in_a_home(path: Path) -> bool:
    """Tell whether a path lies in a user's home, which services do not see."""
    return any(path.is_relative_to(home) for home in _HOMES)
