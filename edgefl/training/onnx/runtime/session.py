"""Opens graphs on stock onnxruntime, set for small boards: few threads, no arena, no spinning."""

from edgefl.errors import TrainingError
from edgefl.training.kinds import Provider
from edgefl.training.onnx.runtime.quiet import onnxruntime

_PROVIDERS = {
    Provider.CPU: ["CPUExecutionProvider"],
    Provider.CUDA: ["CUDAExecutionProvider", "CPUExecutionProvider"],
}

# In 1.16.3 and 1.17.3 it ends the whole process on an attention block whose inner values the
# reverse pass reads as well. What it speeds up is far larger than what a board trains.
_DISABLED_OPTIMIZERS = ["AttentionFusion"]


def open_session(
    graph: bytes,
    *,
    threads: int = 1,
    optimize: bool = True,
    provider: Provider = Provider.CPU,
    keeps_buffers: bool = False,
    fuses_int8: bool = False,
) -> onnxruntime.InferenceSession:
    """Open one graph.

    Args:
        graph: ONNX bytes of a verified bundle.
        threads: Threads within an operator, at least 1.
        optimize: False runs the nodes as written; for tests.
        provider: Processor; nodes without a kernel for it run on the CPU.
        keeps_buffers: Whether memory is kept from run to run, for many runs of one shape; see
            `give_back_buffers`.
        fuses_int8: Whether rounding and float operators become int8 kernels where they can. Not in
            training graphs: the values inside are needed in float32, onnxruntime 1.16.3 forgets the
            axis of scales when it copies a DequantizeLinear for each of its readers, and 1.32
            cannot load a graph with exact sums in which two nodes read one int8 weight.

    Returns:
        The session.

    Raises:
        TrainingError: E-TRAIN-THREADS, E-GRAPH-REFUSED when onnxruntime cannot load the graph, or
            E-PROVIDER when it cannot use the processor.
    """
    if threads < 1:
        raise TrainingError(
            "E-TRAIN-THREADS", "at least 1 thread", str(threads), "set threads to 1 or more"
        )
    options = _options(
        threads=threads, optimize=optimize, keeps_buffers=keeps_buffers, fuses_int8=fuses_int8
    )
    try:
        session = onnxruntime.InferenceSession(
            graph,
            options,
            providers=_PROVIDERS[provider],
            disabled_optimizers=_DISABLED_OPTIMIZERS,
            # It would print to stdout and try the same again.
            enable_fallback=0,
        )
    except Exception as error:  # its exception types share no base
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TrainingError(
            "E-GRAPH-REFUSED",
            "a graph that this onnxruntime can run",
            f"onnxruntime {onnxruntime.__version__} says: {first_line[:200]}",
            "check the bundle's minimum version with 'edgefl model inspect'",
        ) from error
    if _PROVIDERS[provider][0] not in session.get_providers():
        # onnxruntime falls back to the CPU in silence.
        raise TrainingError(
            "E-PROVIDER",
            f"onnxruntime with {provider.value}",
            f"onnxruntime {onnxruntime.__version__} with {', '.join(session.get_providers())}",
            "install an onnxruntime built for this GPU, or use the CPU: --provider cpu",
        )
    return session


def _options(
    *, threads: int, optimize: bool, keeps_buffers: bool, fuses_int8: bool
) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # The arena keeps freed buffers for the next run. Without it every step asks the kernel for its
    # pages anew, which was half the time of a step of a 2-D net; with it memory is given back only
    # when asked for.
    options.enable_cpu_mem_arena = keeps_buffers
    # Up to 1.17 at least, a pattern planned after the first run gives buffers of unused outputs
    # away too early: from the second run on, gradients were silently wrong. It buys no time.
    options.enable_mem_pattern = False
    # Spinning threads drain the battery between steps.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if fuses_int8:
        # On x86 without VNNI the usual int8 kernels add pairs of products in 16 bits and cut the
        # sums; these are exact and about a quarter slower. ARM kernels are exact anyway.
        options.add_session_config_entry("session.x64quantprecision", "1")
    else:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.log_severity_level = 4
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    return options


def give_back_buffers() -> onnxruntime.RunOptions:
    """Return options for the last of many runs: what the session keeps is freed after it."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def graph_failed(name: str, error: Exception) -> TrainingError:
    """Return E-GRAPH-FAILED for what onnxruntime raised while it ran or bound a graph.

    A bundle comes from a peer: what its graphs make of their inputs shows only when they run, and
    onnxruntime's errors share no base with ours.

    Args:
        name: Of the file in the bundle.
        error: What was raised.
    """
    # Its texts may begin with an empty line.
    text = " ".join(str(error).split()) or type(error).__name__
    return TrainingError(
        "E-GRAPH-FAILED",
        f"a {name} that runs and gives what the manifest says",
        f"onnxruntime {onnxruntime.__version__} says: {text[:200]}",
        "prepare the bundle anew with 'edgefl model prepare', which runs it once",
    )
