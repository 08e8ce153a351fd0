"""What a preparation is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgefl.errors import ConfigError
from edgefl.training.kinds import Loss, Runtime
from edgefl.training.onnx.compile.optim import OptimizerSettings
from edgefl.training.onnx.compile.quantize.request import QuantizationRequest
from edgefl.training.onnx.compile.select import ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """Choices of one preparation.

    Attributes:
        loss: What training makes small.
        optimizer: How a step uses the gradient.
        trainable: Terms of `select.parse_selection`.
        local: Terms for the trained tensors that stay on the device.
        lora_alpha: Strength of low-rank changes; None takes the rank.
        seed: Of all first values that are drawn.
        clips_examples: Whether a step clips the gradient of each example on its own.
        quantization: Which integers are used.
        runtimes: Libraries that the bundle is for.
        batch_rows: Rows of every call of the TFLite form, which has fixed sizes.
        splits_front: False keeps the frozen front part in the training graph; for comparisons.
    """

    loss: Loss = Loss.CROSS_ENTROPY
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    trainable: str | Sequence[str] = ALL
    local: str | Sequence[str] = ()
    lora_alpha: float | None = None
    seed: int = 0
    clips_examples: bool = False
    quantization: QuantizationRequest = field(default_factory=QuantizationRequest)
    runtimes: tuple[Runtime, ...] = (Runtime.ONNX,)
    batch_rows: int = 16
    splits_front: bool = True

    def __post_init__(self) -> None:
        """Check what the types do not say.

        Raises:
            ConfigError: E-MODEL-LORA, E-MODEL-RUNTIME or E-MODEL-SEED.
        """
        if self.lora_alpha is not None and not 0.0 < self.lora_alpha < 1e6:
            raise ConfigError(
                "E-MODEL-LORA", "an alpha above 0", str(self.lora_alpha), "leave it out"
            )
        if Runtime.ONNX not in self.runtimes or len(set(self.runtimes)) != len(self.runtimes):
            raise ConfigError(
                "E-MODEL-RUNTIME",
                "onnx, or onnx,litert",
                ",".join(runtime.value for runtime in self.runtimes) or "none",
                "every bundle holds the ONNX form, from which the others are made",
            )
        if self.seed < 0:
            raise ConfigError(
                "E-MODEL-SEED", "a seed of at least 0", str(self.seed), "leave it out, or take 0"
            )
