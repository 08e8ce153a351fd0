"""Draw accuracy and dropouts of a demo run."""

from collections import Counter
from pathlib import Path

from edgefl.demo.outcome import Outcome
from edgefl.protocol.reasons import Phase

_COLOURS = ("tab:grey", "tab:blue", "tab:orange", "tab:purple", "tab:red")


def draw(outcome: Outcome, path: Path) -> None:
    """Write a PNG: accuracy per round above, what became of each device below."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    rounds = [event["round"] for event in outcome.record.committed]
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(8, 7), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    upper.plot(list(outcome.accuracies), list(outcome.accuracies.values()), "o-", label="federated")
    central = outcome.central_accuracies
    upper.plot(range(1, len(central) + 1), central, "s--", label="central, same budget")
    upper.axhline(outcome.majority, color="grey", linestyle=":", label="most frequent exercise")
    upper.set(ylabel="accuracy on held-out people", ylim=(0, 1))
    upper.set_title("Federated training with secure aggregation, clip and noise, while devices die")
    upper.legend(loc="lower right")
    upper.grid(alpha=0.3)
    bottom = [event["survivors"] for event in outcome.record.committed]
    below = [0] * len(bottom)
    lower.bar(rounds, bottom, color="tab:green", label="in the sum")
    for phase, colour in zip(outcome.phases, _COLOURS, strict=False):
        lost = [_lost(event, phase.name) for event in outcome.record.committed]
        if phase in (Phase.CERTIFICATE, Phase.UNMASKING):
            # They are in the sum already; only their answer is missing.
            lower.bar(
                rounds,
                [-count for count in lost],
                bottom=below,
                color=colour,
                label=f"died in {phase.name}, in the sum",
            )
            below = [depth - count for depth, count in zip(below, lost, strict=True)]
            continue
        lower.bar(rounds, lost, bottom=bottom, color=colour, label=f"died in {phase.name}")
        bottom = [height + count for height, count in zip(bottom, lost, strict=True)]
    lower.axhline(
        outcome.spec.survivor_floor,
        color="black",
        linestyle="--",
        linewidth=1,
        label="survivor floor",
    )
    lower.axhline(0, color="black", linewidth=0.8)
    lower.set(xlabel="round", ylabel="devices")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    lower.set_xlim(0.3, max(rounds, default=1) + 0.7)
    figure.legend(
        *lower.get_legend_handles_labels(), loc="outside lower center", fontsize="small", ncols=3
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lost(event: dict[str, object], phase: str) -> int:
    dropouts = event["dropouts"]
    if not isinstance(dropouts, list):
        return 0
    return Counter(drop["phase"] for drop in dropouts)[phase]
