//! Scales and rounds an update to integers at random, inside a bound on the norm.
//!
//! Source: conditional stochastic rounding, Kairouz, Liu and Steinke 2021, section 4.1 (theorem 1
//! gives the bound). A value x becomes floor(x) + 1 with probability x - floor(x), else floor(x),
//! with 64 random bits per value from the ChaCha20 stream of a seed. The whole vector is drawn
//! again while its squared norm, computed in integers, is over the bound; at the cap of attempts
//! it is rounded toward zero, which never makes it longer than the scaled update.
//!
//! Privacy: the bound holds for every output, which is what the accounting needs. Rounding on the
//! condition of the bound biases the mean slightly. The number of attempts depends on the data and
//! must not be published. Run once per update: two roundings of one update differ by the data.

use crate::error::CoreError;
use crate::prg::RandomWords;
use crate::ring::same_length;
use crate::secret::Seed;

/// Scaled values stay below this, where every f64 has its floor and fraction exactly.
pub const MAX_QUANTIZED: f64 = 4_503_599_627_370_496.0; // 2^52

const TWO_POW_64: f64 = 18_446_744_073_709_551_616.0;

/// How an update becomes integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizeSettings {
    /// Factor from update units to integers.
    pub scale: f64,
    /// Bound on the squared L2 norm of the integers.
    pub l2_squared_bound: f64,
    /// How often to draw before rounding toward zero.
    pub max_attempts: u32,
}

/// Writes the rounded update and returns the attempts used.
///
/// `max_attempts + 1` says that every attempt was over the bound and the values were rounded
/// toward zero.
///
/// # Errors
/// [`CoreError::Length`], [`CoreError::QuantizeScale`], [`CoreError::NormBound`],
/// [`CoreError::Attempts`], [`CoreError::UpdateNotFinite`], [`CoreError::UpdateRange`],
/// [`CoreError::UpdateNorm`] or [`CoreError::StreamLength`].
pub fn quantize(
    update: &[f32],
    out: &mut [i64],
    settings: QuantizeSettings,
    rounding_seed: &Seed,
) -> Result<u64, CoreError> {
    same_length("the output", update.len(), out.len())?;
    let bound = check_settings(settings)?;
    check_update(update, settings.scale)?;
    let mut words = RandomWords::new(rounding_seed);
    for attempt in 1..=u64::from(settings.max_attempts) {
        for (target, value) in out.iter_mut().zip(update) {
            *target = round_stochastically(scaled(*value, settings.scale), words.next_u64()?);
        }
        if squared_norm(out) <= bound {
            return Ok(attempt);
        }
    }
    for (target, value) in out.iter_mut().zip(update) {
        *target = to_integer(scaled(*value, settings.scale).trunc());
    }
    if squared_norm(out) <= bound {
        return Ok(u64::from(settings.max_attempts) + 1);
    }
    out.fill(0);
    Err(CoreError::UpdateNorm {
        bound: settings.l2_squared_bound,
    })
}

fn scaled(value: f32, scale: f64) -> f64 {
    scale * f64::from(value)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the cast floors, as meant
fn check_settings(settings: QuantizeSettings) -> Result<u128, CoreError> {
    if !(settings.scale.is_finite() && settings.scale > 0.0) {
        return Err(CoreError::QuantizeScale {
            found: settings.scale,
        });
    }
    if settings.l2_squared_bound.is_nan() || settings.l2_squared_bound < 0.0 {
        return Err(CoreError::NormBound {
            found: settings.l2_squared_bound,
        });
    }
    if settings.max_attempts == 0 {
        return Err(CoreError::Attempts { found: 0 });
    }
    Ok(settings.l2_squared_bound as u128)
}

fn check_update(update: &[f32], scale: f64) -> Result<(), CoreError> {
    let count = update.iter().filter(|value| !value.is_finite()).count();
    if let Some(index) = update.iter().position(|value| !value.is_finite()) {
        return Err(CoreError::UpdateNotFinite { index, count });
    }
    update
        .iter()
        .position(|value| scaled(*value, scale).abs() >= MAX_QUANTIZED)
        .map_or(Ok(()), |index| Err(CoreError::UpdateRange { index }))
}

/// Rounds up when 64 random bits, read as a fraction, are below the fraction of `value`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 <= fraction <= 1
fn round_stochastically(value: f64, random: u64) -> i64 {
    let floor = value.floor();
    let up_below = ((value - floor) * TWO_POW_64) as u64;
    to_integer(floor) + i64::from(random < up_below)
}

#[allow(clippy::cast_possible_truncation)] // below 2^52 and whole
fn to_integer(value: f64) -> i64 {
    value as i64
}

fn squared_norm(values: &[i64]) -> u128 {
    values
        .iter()
        .map(|value| u128::from(value.unsigned_abs()).pow(2))
        .sum()
}
