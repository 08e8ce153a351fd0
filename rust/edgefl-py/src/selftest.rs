//! The self-test, and the speed of each piece of mask code.

use std::time::Instant;

use edgefl_core as core;
use pyo3::prelude::*;

use crate::arguments::WideInt;
use crate::errors::to_python;

/// Masks of one measured pass: enough that reading the tile costs nothing beside them.
const MASKS: u8 = 30;
const PASSES: usize = 61;

/// Runs the standards' vectors, and compares all mask code with the portable one.
#[pyfunction]
pub(crate) fn selftest(py: Python<'_>) -> Vec<(String, bool)> {
    let results = py.detach(core::self_test);
    results
        .into_iter()
        .map(|result| (result.name, result.passed))
        .collect()
}

/// Measures one piece of mask code: nanoseconds per coordinate and mask.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn measure_backend(
    py: Python<'_>,
    prg: &str,
    backend: &str,
    lane_bits: WideInt,
) -> PyResult<f64> {
    let found = core::Prg::ALL
        .into_iter()
        .find(|known| known.name() == prg)
        .and_then(|prg| {
            let mut available = core::Backend::available(prg).into_iter();
            Some((prg, available.find(|known| known.name() == backend)?))
        });
    let (prg, backend) = found.ok_or_else(|| to_python(core::CoreError::Backend))?;
    py.detach(|| match lane_bits.0 {
        16 => measure::<u16>(prg, backend),
        32 => measure::<u32>(prg, backend),
        _ => Err(core::CoreError::Backend),
    })
    .map_err(to_python)
}

/// Takes the median over passes of one tile each, short enough that few are interrupted.
fn measure<L: core::Lane>(prg: core::Prg, backend: core::Backend) -> Result<f64, core::CoreError> {
    let seeds = (0..MASKS)
        .map(|byte| core::Seed::from_bytes(&[byte; 32]))
        .collect::<Result<Vec<_>, _>>()?;
    let sign = core::Sign::Add;
    let masks: Vec<core::Mask<'_>> = seeds
        .iter()
        .map(|seed| core::Mask { seed, prg, sign })
        .collect();
    let expander = core::MaskExpander::with_backend(&masks, backend)?;
    let mut tile = vec![L::default(); core::TILE_BYTES / L::BYTES];
    let mut passes = Vec::with_capacity(PASSES);
    for _ in 0..PASSES {
        let started = Instant::now();
        expander.add_to_tile(&mut tile, 0)?;
        passes.push(started.elapsed());
    }
    passes.sort_unstable();
    #[allow(clippy::cast_precision_loss)] // small
    let coordinates = (tile.len() * seeds.len()) as f64;
    Ok(passes[PASSES / 2].as_secs_f64() * 1e9 / coordinates)
}
