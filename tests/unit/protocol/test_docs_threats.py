"""docs/threat-model.md names the defences' tests, and the owner's floors with their defaults."""

import re
import tomllib
from pathlib import Path

from edgefl.agent.policy_file import read_policy

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
_HOSTILE = sorted(Path(__file__).parent.glob("test_hostile_*.py"))


def test_every_defence_has_its_row_and_its_tests() -> None:
    rows = re.findall(r"^\| (\d+) \| .* \| `(TestDefence\d+\w+)` \|$", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 13))
    found = {
        name: path.name
        for path in _HOSTILE
        for name in re.findall(r"^class (TestDefence\w+)", path.read_text(), re.MULTILINE)
    }
    assert {name for _, name in rows} == set(found)
    for number, name in rows:
        assert re.match(rf"TestDefence{number}[A-Z]", name)
    assert all(f"tests/unit/protocol/{file}" in PAGE for file in found.values())


def test_the_floors_on_the_page_are_all_there_are_and_have_their_defaults(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "policy.toml"
    path.write_text(block, encoding="utf-8")
    assert read_policy(path, {}) == read_policy(None, {})
    listed = list(tomllib.loads(block))
    source = (ROOT / "edgefl" / "agent" / "policy_file.py").read_text()
    keys = source.split("_KEYS: ")[1].split("\n}\n")[0]
    assert listed == re.findall(r'^    "(\w+)":', keys, re.MULTILINE)
