"""Bytes that are nobody's Ed25519 key are told from keys, and refused where a person gives them."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl._native import Seed, SigningKey
from edgefl.errors import WireError
from edgefl.protocol import wire
from edgefl.protocol.epoch_messages import RosterUpdate
from edgefl.protocol.public_keys import weakness_of
from edgefl.protocol.roster import Roster
from tests.command import Run
from tests.command import run as _run
from tests.epoch_harness import FLEET, entry_of, make_roster, new_board, refuses

run = _run
P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)
Point = tuple[int, int]

# ---------------------------------------------------------------- plain arithmetic of the curve


def add(left: Point, right: Point) -> Point:
    """Add points of -x^2 + y^2 = 1 + d x^2 y^2. Source: RFC 8032, section 5.1.4."""
    (x1, y1), (x2, y2) = left, right
    across = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + across, -1, P) % P
    return x, (y1 * y2 + x1 * x2) * pow(1 - across, -1, P) % P


def multiply(factor: int, point: Point) -> Point:
    result = (0, 1)
    for bit in f"{factor:b}":
        result = add(result, result)
        if bit == "1":
            result = add(result, point)
    return result


def decompress(encoded: bytes) -> Point | None:
    """Return the point, whatever the encoding's form; None for what is none. Section 5.1.3."""
    number = int.from_bytes(encoded, "little")
    y, odd = number % 2**255 % P, number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT_OF_MINUS_1 % P
    if x * x % P != square:
        return None
    return (P - x) % P if x % 2 != odd else x, y


def compress(point: Point) -> bytes:
    return (point[1] | (point[0] % 2) << 255).to_bytes(32, "little")


def small_points() -> set[Point]:
    """Return what is left of points when the large prime is multiplied away."""
    order = 2**252 + 27742317777372353535851937790883648493
    found: set[Point] = set()
    for number in range(200):
        point = decompress(number.to_bytes(32, "little"))
        if point is not None:
            found.add(multiply(order, point))
    return found


# ---------------------------------------------------------------- the keys


def test_every_point_of_small_order_is_refused() -> None:
    points = small_points()
    assert len(points) == 8
    for point in points:
        assert "small order" in str(weakness_of(compress(point)))
        other_sign = bytearray(compress(point))
        other_sign[31] ^= 0x80
        assert "small order" in str(weakness_of(bytes(other_sign)))
    assert weakness_of(bytes(32)) is not None


def test_encodings_that_are_not_canonical_are_refused() -> None:
    for extra in range(19):
        for sign in (0, 1 << 255):
            encoded = (P + extra | sign).to_bytes(32, "little")
            assert "canonical" in str(weakness_of(encoded))


@given(secret=st.binary(min_size=32, max_size=32))
def test_every_key_of_a_secret_passes(secret: bytes) -> None:
    assert weakness_of(SigningKey.from_seed(Seed.from_bytes(secret)).public_key) is None


@given(encoded=st.binary(min_size=32, max_size=32))
def test_other_bytes_pass_exactly_if_they_are_a_point_of_large_order(encoded: bytes) -> None:
    point = decompress(encoded)
    is_canonical = int.from_bytes(encoded, "little") % 2**255 < P
    is_sound = point is not None and is_canonical and multiply(8, point) != (0, 1)
    assert (weakness_of(encoded) is None) == is_sound


# ---------------------------------------------------------------- where they are given

WEAK = {
    "zero": bytes(32),
    "one": (1).to_bytes(32, "little"),
    "not canonical": (P + 5).to_bytes(32, "little"),
    "no point": (2).to_bytes(32, "little"),
}


@pytest.mark.parametrize("name", WEAK)
def test_options_refuse_them(run: Run, tmp_path: Path, name: str) -> None:
    words = ("--enrolment-key", WEAK[name].hex(), "--state", tmp_path / "state")
    run("gateway", "run", "--port", 0, *words).refuses("E-ENROLMENT-KEY-WEAK", 2)
    agent = ("agent", "run", "--device", "a", "--data", "spar:1-left", "--wait-s", 1)
    run(*agent, *words).refuses("E-ENROLMENT-KEY-WEAK", 2)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", WEAK)
def test_roster_files_that_name_them_are_refused(run: Run, tmp_path: Path, name: str) -> None:
    body = dict(wire.as_body(wire.decode(make_roster(["a", "b"]).to_bytes())))
    body[1] = WEAK[name]
    path = tmp_path / "roster"
    path.write_bytes(wire.encode(body))
    with pytest.raises(WireError, match="E-ENROLMENT-KEY-WEAK"):
        Roster.from_bytes(path.read_bytes())
    run("roster", "show", path).refuses("E-ENROLMENT-KEY-WEAK", 2)


@pytest.mark.parametrize("name", WEAK)
def test_a_device_pins_none_of_them(name: str) -> None:
    roster = make_roster(["d00", "d01"])
    update = RosterUpdate(
        enrolment_key=roster.enrolment_key,
        headers=roster.headers,
        enrolled_day=entry_of("d00").enrolled_day,
        position=0,
        path=roster.path(0),
    )
    board = new_board()
    refuses(board, replace(update, enrolment_key=WEAK[name]), "E-ENROLMENT-KEY-WEAK")
    assert board.machine.enrolment_key is None
    board.say(update)
    assert board.machine.enrolment_key == roster.enrolment_key
    assert roster.epoch.fleet == FLEET
