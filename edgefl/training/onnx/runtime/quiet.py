"""The only place that imports onnxruntime: first its telemetry is turned off, then it is loaded.

The official wheels from 1.29 on send facts about process, models and sessions to their maker, and
write identifiers into the temporary and home folders, unless `ORT_DISABLE_TELEMETRY` is set before
the library is loaded. A device that keeps its data to itself does not do that; a value set by the
user does not change it.

Source: onnxruntime pull request 27379 ("Add POSIX telemetry").
"""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

if hasattr(onnxruntime, "disable_telemetry_events"):
    onnxruntime.disable_telemetry_events()

__all__ = ["onnxruntime"]
