//! Shamir's secret sharing.

use edgefl_core as core;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::arguments::{slices, WideInt};
use crate::errors::to_python;
use crate::keys::{core_seeds, Seed};

fn integers(points: &[WideInt]) -> Vec<i64> {
    points.iter().map(|point| point.0).collect()
}

fn share_bytes<'py>(py: Python<'py>, shares: &core::Shares) -> Vec<Bound<'py, PyBytes>> {
    shares
        .iter()
        .map(|share| PyBytes::new(py, share.as_slice()))
        .collect()
}

/// Splits a secret into one 40-byte share per point.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn split_secret<'py>(
    py: Python<'py>,
    secret: &Seed,
    threshold: WideInt,
    points: Vec<WideInt>,
    coefficient_seed: &Seed,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let points = integers(&points);
    let shares = py
        .detach(|| core::split_secret(&secret.0, threshold.0, &points, &coefficient_seed.0))
        .map_err(to_python)?;
    Ok(share_bytes(py, &shares))
}

/// Splits several secrets at the same points; one list of shares per secret.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn split_secrets<'py>(
    py: Python<'py>,
    secrets: Vec<Py<Seed>>,
    threshold: WideInt,
    points: Vec<WideInt>,
    coefficient_seed: &Seed,
) -> PyResult<Vec<Vec<Bound<'py, PyBytes>>>> {
    let (secrets, points) = (core_seeds(&secrets), integers(&points));
    let lists = py
        .detach(|| core::split_secrets(&secrets, threshold.0, &points, &coefficient_seed.0))
        .map_err(to_python)?;
    Ok(lists.iter().map(|shares| share_bytes(py, shares)).collect())
}

/// Combines (point, share) pairs to the secret; checks all, uses the first `threshold`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn combine_shares(
    shares: Vec<(WideInt, Bound<'_, PyBytes>)>,
    threshold: WideInt,
) -> PyResult<Seed> {
    let shares: Vec<core::Share<'_>> = shares
        .iter()
        .map(|(point, bytes)| core::Share {
            point: point.0,
            bytes: bytes.as_bytes(),
        })
        .collect();
    core::combine_shares(&shares, threshold.0)
        .map(Seed)
        .map_err(to_python)
}

/// Combines many secrets whose shares sit at the same points; None is no secret.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn combine_many(
    py: Python<'_>,
    points: Vec<WideInt>,
    shares: Vec<Vec<PyBackedBytes>>,
    threshold: WideInt,
) -> PyResult<Vec<Option<Seed>>> {
    let points = integers(&points);
    let lists: Vec<Vec<&[u8]>> = shares.iter().map(|list| slices(list)).collect();
    let secrets = py
        .detach(|| core::combine_many(&points, &lists, threshold.0))
        .map_err(to_python)?;
    Ok(secrets.into_iter().map(|secret| secret.map(Seed)).collect())
}
