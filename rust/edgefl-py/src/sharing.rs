//! Shamir's secret sharing.

use edgefl_core as core;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::WideInt;
use crate::errors::to_python;
use crate::keys::Seed;

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
    let points: Vec<i64> = points.into_iter().map(|point| point.0).collect();
    let shares = core::split_secret(&secret.0, threshold.0, &points, &coefficient_seed.0)
        .map_err(to_python)?;
    Ok(shares
        .iter()
        .map(|share| PyBytes::new(py, share.as_slice()))
        .collect())
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
