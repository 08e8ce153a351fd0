"""What `edgefl model` prints of models and bundles."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgefl.training.bundle import Bundle
from edgefl.training.manifest import Manifest

if TYPE_CHECKING:
    from edgefl.training.onnx.compile.report import ModelReport

_MOST_FROZEN_SHOWN = 12


def manifest_facts(manifest: Manifest) -> dict[str, object]:
    """Return what prepare, check and inspect say alike."""
    return {
        "dimension": manifest.dimension,
        "local_dimension": manifest.local_dimension,
        "classes": manifest.classes,
        "input_shape": list(manifest.input.shape),
        "loss": manifest.loss.value,
        "optimizer": manifest.optimizer.value,
        "parameters": {slot.name: list(slot.shape) for slot in manifest.parameters},
        "local": {slot.name: list(slot.shape) for slot in manifest.local},
        "features": {
            spec.name: f"{spec.element_type.value} {list(spec.shape)}" for spec in manifest.features
        },
        "runtimes": {
            program.runtime.value: f"{program.minimum_version} or newer"
            for program in manifest.programs
        },
    }


def bundle_facts(bundle: Bundle) -> dict[str, object]:
    """Return all there is to say of a bundle."""
    manifest = bundle.manifest
    return {
        "sha256": bundle.sha256,
        **manifest_facts(manifest),
        "optimizer_settings": dict(manifest.optimizer_settings),
        "clips_examples": manifest.clips_examples,
        "input_name": manifest.input.name,
        "input_type": manifest.input.element_type.value,
        "output_name": manifest.output.name,
        "frozen": {
            spec.name: f"{spec.element_type.value} {list(spec.shape)}" for spec in manifest.frozen
        },
        "quantization": {
            "mode": manifest.quantization.mode.value,
            **manifest.quantization.facts,
        },
        "programs": {
            program.runtime.value: ", ".join(f"{k} {v}" for k, v in program.facts.items())
            for program in manifest.programs
        },
        "merges": {merge.target: f"{merge.left} x {merge.right}" for merge in manifest.merges},
        "vector_sha256": manifest.vector_sha256,
        "source_sha256": manifest.source_sha256,
        "files": {
            name: f"{len(bundle.contents[name])} bytes, {digest}"
            if name in bundle.contents
            else digest
            for name, digest in manifest.files.items()
        },
    }


def report_facts(model: str, report: "ModelReport") -> dict[str, object]:
    """Return a report on a model for other programs."""
    prepared = report.prepared
    return {
        "model": model,
        "trains": not report.obstacles,
        "verdict": report.verdict.value,
        "obstacles": [
            {
                "code": error.code,
                "expected": error.expected,
                "found": error.found,
                "advice": error.advice,
            }
            for error in report.obstacles
        ],
        "operators": [
            {"operator": one.operator, "coverage": one.coverage.value, "count": one.count}
            for one in report.operators
        ],
        **({} if prepared is None else manifest_facts(prepared.manifest)),
        "warnings": [] if prepared is None else list(prepared.warnings),
    }


def show_report(model: str, report: "ModelReport") -> None:
    """Print a report on a model for a person."""
    lines = [f"model: {model}", f"verdict: {report.verdict.value}"]
    lines += [f"obstacle: {error}" for error in report.obstacles]
    lines.append("operators:")
    width = max((len(one.operator) for one in report.operators), default=0)
    lines += [
        f"  {one.operator:<{width}} {one.count:>4}  {one.coverage.value}"
        for one in report.operators
    ]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if report.prepared is not None:
        facts = manifest_facts(report.prepared.manifest)
        show(facts, report.prepared.warnings, as_json=False)


def show(facts: Mapping[str, object], warnings: Sequence[str], *, as_json: bool) -> None:
    """Print facts, one a line, or all as one JSON object; empty groups are left out of lines."""
    if as_json:
        sys.stdout.write(json.dumps({"warnings": list(warnings), **facts}) + "\n")
        return
    for name, value in facts.items():
        if isinstance(value, Mapping):
            _show_group(name, value)
        else:
            sys.stdout.write(f"{name}: {value}\n")
    sys.stdout.writelines(f"note: {warning}\n" for warning in warnings)


def _show_group(name: str, group: Mapping[str, object]) -> None:
    if not group:
        return
    sys.stdout.write(f"{name}:\n")
    shown = list(group.items())
    left_out = len(shown) - _MOST_FROZEN_SHOWN if name == "frozen" else 0
    if left_out > 0:
        shown = shown[:_MOST_FROZEN_SHOWN]
    sys.stdout.writelines(f"  {key} {value}\n" for key, value in shown)
    if left_out > 0:
        sys.stdout.write(f"  and {left_out} more (--json lists all)\n")
