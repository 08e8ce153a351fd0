//! The device path from update to masked input, and the rotation by itself.

use edgefl_core as core;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zeroize::Zeroizing;

use crate::arguments::{readable, session_id_of, threads_of, writable, WideInt};
use crate::errors::to_python;
use crate::keys::Seed;
use crate::masks::{CancelFlag, Mask};

/// Clips, rotates, rounds, weighs, noises, masks and packs an update in one pass per tile.
#[pyfunction]
#[pyo3(
    signature = (
        update, *, clip_norm, scale, l2_squared_bound, noise_variance, ring_bits, session_id,
        rounding_seed, noise_seed, masks, rotation_block=WideInt(0), rotation_seed=b"".as_slice(),
        weight=WideInt(1), weight_bound=WideInt(1), rounding_prg=WideInt(1), threads=WideInt(1),
        cancel=None
    ),
    text_signature = "(update, *, clip_norm, scale, l2_squared_bound, noise_variance, ring_bits, session_id, rounding_seed, noise_seed, masks, rotation_block=0, rotation_seed=b'', weight=1, weight_bound=1, rounding_prg=1, threads=1, cancel=None)"
)]
#[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // the shape of a Python call
pub(crate) fn encode_and_mask<'py>(
    py: Python<'py>,
    update: &Bound<'py, PyAny>,
    clip_norm: f64,
    scale: f64,
    l2_squared_bound: f64,
    noise_variance: f64,
    ring_bits: WideInt,
    session_id: &[u8],
    rounding_seed: &Seed,
    noise_seed: &Seed,
    masks: Vec<Py<Mask>>,
    rotation_block: WideInt,
    rotation_seed: &[u8],
    weight: WideInt,
    weight_bound: WideInt,
    rounding_prg: WideInt,
    threads: WideInt,
    cancel: Option<&CancelFlag>,
) -> PyResult<Bound<'py, PyBytes>> {
    let noise = core::SkellamNoise::new(noise_variance, &noise_seed.0).map_err(to_python)?;
    let settings = core::EncodeSettings {
        clip_norm,
        quantize: core::QuantizeSettings {
            scale,
            l2_squared_bound,
            max_attempts: core::MAX_ATTEMPTS,
        },
        ring: core::RingBits::new(ring_bits.0).map_err(to_python)?,
        rotation: rotation_of(&rotation_block, rotation_seed)?,
        weight: core::weight_slot(weight.0, weight_bound.0, noise.is_some()).map_err(to_python)?,
        session_id: &session_id_of(session_id)?,
        threads: threads_of(&threads)?,
        cancel: cancel.map(|flag| flag.0.clone()),
    };
    let rounding_prg = core::Prg::from_id(rounding_prg.0).map_err(to_python)?;
    let masks: Vec<core::Mask<'_>> = masks.iter().map(|mask| mask.get().to_core()).collect();
    // A copy: another Python thread may write to the array while the lock is released.
    let update = Zeroizing::new(readable::<f32>("update", update)?.to_vec(py)?);
    let size_bytes = settings
        .packed_bytes(update.len())
        .ok_or_else(|| PyOverflowError::new_err("the packed vector leaves the address space"))?;
    let secrets = Secrets {
        rounding_seed: &rounding_seed.0,
        rounding_prg,
        masks: &masks,
    };
    PyBytes::new_with(py, size_bytes, |packed| {
        py.detach(|| match &noise {
            Some(noise) => secrets.encode(&update, &settings, noise, packed),
            None => secrets.encode(&update, &settings, &core::NoNoise, packed),
        })
        .map_err(to_python)
    })
}

/// What both kinds of noise are encoded with.
struct Secrets<'a> {
    rounding_seed: &'a core::Seed,
    rounding_prg: core::Prg,
    masks: &'a [core::Mask<'a>],
}

impl Secrets<'_> {
    fn encode<N: core::NoiseSource>(
        &self,
        update: &[f32],
        settings: &core::EncodeSettings<'_>,
        noise: &N,
        packed: &mut [u8],
    ) -> Result<(), core::CoreError> {
        let secrets = core::EncodeSecrets {
            rounding_seed: self.rounding_seed,
            rounding_prg: self.rounding_prg,
            noise,
            masks: self.masks,
        };
        core::encode_and_mask(update, settings, &secrets, packed)
    }
}

/// Turns an unmasked sum into update units: centres, undoes the rotation, divides by the scale.
#[pyfunction]
#[pyo3(
    signature = (total, out, *, ring_bits, scale, rotation_block=WideInt(0), rotation_seed=b"".as_slice()),
    text_signature = "(total, out, *, ring_bits, scale, rotation_block=0, rotation_seed=b'')"
)]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn decode_sum(
    py: Python<'_>,
    total: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    ring_bits: WideInt,
    scale: f64,
    rotation_block: WideInt,
    rotation_seed: &[u8],
) -> PyResult<()> {
    let ring = core::RingBits::new(ring_bits.0).map_err(to_python)?;
    let rotation = rotation_of(&rotation_block, rotation_seed)?;
    let total = Zeroizing::new(readable::<u32>("total", total)?.to_vec(py)?);
    let buffer = writable::<f64>("out", out)?;
    let mut decoded = Zeroizing::new(vec![0.0; buffer.item_count()]);
    py.detach(|| core::decode_sum(&total, ring, scale, rotation.as_ref(), &mut decoded))
        .map_err(to_python)?;
    buffer.copy_from_slice(py, &decoded)
}

/// Rotates whole blocks in place.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn rotate(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    rotation_block: WideInt,
    rotation_seed: &[u8],
) -> PyResult<()> {
    let rotation = core::Rotation::new(rotation_block.0, &rotation_seed_of(rotation_seed)?)
        .map_err(to_python)?;
    let buffer = writable::<f64>("values", values)?;
    let mut rotated = Zeroizing::new(buffer.to_vec(py)?);
    py.detach(|| rotation.rotate(&mut rotated))
        .map_err(to_python)?;
    buffer.copy_from_slice(py, &rotated)
}

fn rotation_of(block: &WideInt, seed: &[u8]) -> PyResult<Option<core::Rotation>> {
    if block.0 == 0 {
        return Ok(None);
    }
    core::Rotation::new(block.0, &rotation_seed_of(seed)?)
        .map(Some)
        .map_err(to_python)
}

fn rotation_seed_of(seed: &[u8]) -> PyResult<[u8; 32]> {
    seed.try_into().map_err(|_| {
        to_python(core::CoreError::Length {
            what: "a rotation seed",
            expected: 32,
            found: seed.len(),
        })
    })
}
