//! Functions over whole vectors. All work on copies, without the GIL.

use edgefl_core as core;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{readable, session_id_of, writable, WideInt};
use crate::errors::to_python;
use crate::keys::Seed;

fn ring_of(ring_bits: &WideInt) -> PyResult<core::RingBits> {
    core::RingBits::new(ring_bits.0).map_err(to_python)
}

/// Rounds scale * update to integers at random inside the norm bound; returns the attempts used.
#[pyfunction]
#[pyo3(signature = (update, out, scale, l2_squared_bound, rounding_seed, max_attempts=WideInt(64)), text_signature = "(update, out, scale, l2_squared_bound, rounding_seed, max_attempts=64)")]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn quantize(
    py: Python<'_>,
    update: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    scale: f64,
    l2_squared_bound: f64,
    rounding_seed: &Seed,
    max_attempts: WideInt,
) -> PyResult<u64> {
    let max_attempts = u32::try_from(max_attempts.0).map_err(|_| {
        to_python(core::CoreError::Attempts {
            found: max_attempts.0,
        })
    })?;
    let settings = core::QuantizeSettings {
        scale,
        l2_squared_bound,
        max_attempts,
    };
    let update = readable::<f32>("update", update)?.to_vec(py)?;
    let buffer = writable::<i64>("out", out)?;
    let mut rounded = vec![0; buffer.item_count()];
    let attempts = py
        .detach(|| core::quantize(&update, &mut rounded, settings, &rounding_seed.0))
        .map_err(to_python)?;
    buffer.copy_from_slice(py, &rounded)?;
    Ok(attempts)
}

/// Adds Skellam noise of this variance to each value.
#[pyfunction]
pub(crate) fn add_skellam_noise(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    variance: f64,
    noise_seed: &Seed,
) -> PyResult<()> {
    let buffer = writable::<i64>("values", values)?;
    let mut noised = buffer.to_vec(py)?;
    py.detach(|| core::add_skellam_noise(&mut noised, variance, &noise_seed.0))
        .map_err(to_python)?;
    buffer.copy_from_slice(py, &noised)
}

/// Returns the four check coordinates of a ring vector.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn check_coordinates(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    ring_bits: WideInt,
    session_id: &[u8],
) -> PyResult<Vec<u32>> {
    let ring = ring_of(&ring_bits)?;
    let session_id = session_id_of(session_id)?;
    let values = readable::<u32>("values", values)?.to_vec(py)?;
    let sums = py
        .detach(|| core::check_coordinates(&values, ring, &session_id))
        .map_err(to_python)?;
    Ok(sums.to_vec())
}

/// Packs ring values into b bits each, lowest bit first.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn pack<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    ring_bits: WideInt,
) -> PyResult<Bound<'py, PyBytes>> {
    let ring = ring_of(&ring_bits)?;
    let values = readable::<u32>("values", values)?.to_vec(py)?;
    let packed = py.detach(|| core::pack(&values, ring)).map_err(to_python)?;
    Ok(PyBytes::new(py, &packed))
}

/// Unpacks exactly as many values as `out` holds.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn unpack(
    py: Python<'_>,
    packed: &Bound<'_, PyAny>,
    ring_bits: WideInt,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let ring = ring_of(&ring_bits)?;
    let packed = readable::<u8>("packed", packed)?.to_vec(py)?;
    let buffer = writable::<u32>("out", out)?;
    let mut values = vec![0; buffer.item_count()];
    py.detach(|| core::unpack(&packed, ring, &mut values))
        .map_err(to_python)?;
    buffer.copy_from_slice(py, &values)
}
