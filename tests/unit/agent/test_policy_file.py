"""The owner's floors: what a file names holds, what it misspells is refused."""

from pathlib import Path

import pytest

from edgefl.agent.policy_file import MALICIOUS_CORRUPT_PERMILLE, read_policy
from edgefl.errors import ConfigError
from edgefl.protocol.reasons import AdversaryClass, Prg


def written(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_the_gateway_is_trusted_to_follow_the_protocol() -> None:
    policy = read_policy(None, {})
    assert policy.adversary_classes == frozenset(AdversaryClass)
    assert policy.privacy.max_epsilon == 8.0
    assert not policy.allows_experimental


def test_a_file_sets_every_floor(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        adversary = "malicious"
        least_survivors = 20
        least_degree = 16
        least_corrupt_permille = 70
        least_drop_permille = 60
        young_days = 14
        most_young_permille = 200
        allow_experimental = true
        allow_aes = false
        max_epsilon = 2
        max_clip_norm = 0.5
        least_colluders = 3
        """,
    )
    policy = read_policy(path, {})
    assert policy.adversary_classes == {AdversaryClass.MALICIOUS}
    assert policy.prgs == {Prg.CHACHA20}
    assert policy.allows_experimental
    floors = (policy.least_survivor_floor, policy.least_degree, policy.least_corrupt_permille)
    assert floors == (20, 16, 70)
    shares = (policy.least_drop_permille, policy.young_days, policy.most_young_permille)
    assert shares == (60, 14, 200)
    privacy = policy.privacy
    assert (privacy.max_epsilon, privacy.max_clip_norm, privacy.min_colluders) == (2.0, 0.5, 3)


def test_who_distrusts_the_gateway_assumes_colluders_unless_the_file_says_otherwise(
    tmp_path: Path,
) -> None:
    assert read_policy(None, {"adversary": "malicious"}).least_corrupt_permille == (
        MALICIOUS_CORRUPT_PERMILLE
    )
    path = written(tmp_path, "least_corrupt_permille = 0\n")
    assert read_policy(path, {"adversary": "malicious"}).least_corrupt_permille == 0


def test_an_option_comes_before_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "least_survivors = 20\nmax_epsilon = 2.0\n")
    policy = read_policy(path, {"least_survivors": 7, "max_epsilon": None})
    assert policy.least_survivor_floor == 7
    assert policy.privacy.max_epsilon == 2.0


@pytest.mark.parametrize(
    "text",
    [
        'adversery = "malicious"',
        'adversary = "evil"',
        "least_survivors = 1",
        "least_survivors = 3.5",
        "least_survivors = true",
        "max_epsilon = 0",
        "max_epsilon = nan",
        'allow_experimental = "yes"',
        "most_young_permille = 1001",
        "= 3",
        "\x00",
    ],
)
def test_a_floor_that_cannot_hold_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_policy(written(tmp_path, text + "\n"), {})
    assert caught.value.code == "E-POLICY-FILE"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_policy(tmp_path / "none.toml", {})
    assert caught.value.code == "E-POLICY-FILE"
