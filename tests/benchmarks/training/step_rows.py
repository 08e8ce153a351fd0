"""CPU time of a training step, and of forms of it, by turns with the peers'."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from tests.benchmarks.secagg.results import Goal, Result, at_least, compare
from tests.benchmarks.secagg.turns import PeerProcess, take_turns
from tests.benchmarks.training.settings import Settings

MICRO = 1e6
# "At most 1.25 times the peer's time" is a ratio, theirs over ours, of at least 1 / 1.25.
PEER_BARS: dict[tuple[str, str], Goal] = {
    ("mlp", "onnxruntime-training"): at_least(1 / 1.25),
    ("cnn1d", "onnxruntime-training"): at_least(1 / 1.25),
    ("depthwise2d", "onnxruntime-training"): at_least(1 / 1.25),
    ("mlp", "torch"): at_least(1.0),
    ("cnn1d", "torch"): at_least(1.0),
    ("depthwise2d", "torch"): at_least(1 / 1.3),
    ("depthwise2d-bn", "torch"): at_least(1 / 1.3),
}
NETS = ("mlp", "cnn1d", "depthwise2d", "depthwise2d-bn")


def measure_steps(settings: Settings) -> Iterator[Result]:
    """Compare whole training steps of all weights."""
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(PeerProcess(python, module))
            for name, (python, module) in settings.sides().items()
        }
        for net in NETS:
            taking_part = {
                name: side
                for name, side in sides.items()
                # It would compute batch statistics instead of the stored ones: another step.
                if not (net == "depthwise2d-bn" and name == "onnxruntime-training")
            }
            yield from _compare_sides(net, taking_part, settings)


def _compare_sides(net: str, sides: dict[str, PeerProcess], settings: Settings) -> Iterator[Result]:
    losses = {name: _losses(side, net) for name, side in sides.items()}
    figures = take_turns(
        {name: _turn(side, net, settings) for name, side in sides.items()}, settings.repeats
    )
    own = figures.pop("ours")
    if not figures:
        yield compare("training step", net, "us", own=own)
    for name, peer in figures.items():
        apart = max(abs(a - b) for a, b in zip(losses["ours"], losses[name], strict=True))
        yield compare(
            "training step",
            net,
            "us",
            own=own,
            peer=peer,
            peer_name=name,
            bar=PEER_BARS[net, name],
            stretch=at_least(1.0),
            note=f"losses of the first epochs differ by {apart:.1e} at most",
        )


def _losses(side: PeerProcess, net: str) -> list[float]:
    answer = side.ask("open", net=net)["losses"]
    assert isinstance(answer, list)
    return [float(loss) for loss in answer]


def _turn(side: PeerProcess, net: str, settings: Settings) -> Callable[[], float]:
    return lambda: MICRO * side.figure("time", net=net, seconds=settings.turn_s)


def measure_int8_head(settings: Settings) -> Iterator[Result]:
    """Compare training the head behind an int8 front part with the same behind a float one.

    Each turn's epoch computes the front part anew, as the first epoch of a round does; later epochs
    of a round read what it computed.
    """
    for net in ("cnn1d", "depthwise2d-bn"):
        yield _compare_forms(
            "int8-prefix head step", net, "int8-head", "float-head", at_least(2.0), settings
        )


def measure_clipping(settings: Settings) -> Iterator[Result]:
    """Compare a step that clips each example's gradient with a plain one."""
    for net in ("mlp", "cnn1d", "depthwise2d"):
        yield _compare_forms(
            "clipping each example", net, "clipped", "all", at_least(1 / 3), settings
        )


def _compare_forms(
    row: str, net: str, form: str, plain: str, bar: Goal, settings: Settings
) -> Result:
    with ExitStack() as stack:
        python, module = settings.sides()["ours"]
        side = stack.enter_context(PeerProcess(python, module))
        names = {name: f"{net}/{name}" for name in (form, plain)}
        for name in names.values():
            _losses(side, name)
        turns = {name: _turn(side, full, settings) for name, full in names.items()}
        figures = take_turns(turns, settings.repeats)
    return compare(row, net, "us", own=figures[form], peer=figures[plain], peer_name=plain, bar=bar)
