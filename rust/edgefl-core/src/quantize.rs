//! Clips, scales and rounds an update to integers at random, inside a bound on the norm.
//!
//! Source: conditional stochastic rounding, Kairouz, Liu and Steinke 2021, section 4.1 (theorem 1
//! gives the bound). A value x becomes floor(x) + 1 with probability x - floor(x), else floor(x). The
//! whole vector is drawn again while its squared norm, computed in integers, is over the bound; at
//! the cap of attempts it is rounded toward zero, which never makes it longer than the scaled update.
//!
//! Randomness: attempt a (from 1) has a seed of its own, HKDF-SHA256 of the rounding seed with info
//! `rounding attempt a`; word i (u32 LE) of that seed's keystream rounds coordinate i, so that any
//! tile can be rounded again, alike, without what came before. Resolution: 32 bits per coordinate;
//! x goes up when word / 2^32 < x - floor(x), a probability that is too high by less than 2^-32. An
//! integer never moves.
//!
//! Privacy: the accounting needs the bound on the norm and nothing else of the rounding; it is checked
//! in integers for every output, so the resolution cannot touch it. What 2^-32 per coordinate adds
//! is a bias of the mean, far below that of rounding on the condition of the bound. The number of
//! attempts depends on the data and must not be published. Run once per update: two roundings of one
//! update differ by the data.

#![allow(clippy::inline_always)] // what is not inlined is not compiled for wide vectors

use zeroize::Zeroizing;

use crate::backend::wide::{run_widest, Work};
use crate::backend::Sign;
use crate::error::CoreError;
use crate::mask::{Mask, MaskExpander};
use crate::prg::Prg;
use crate::ring::same_length;
use crate::secret::Seed;

/// Scaled values stay below this, where every f64 has its floor and fraction exactly.
pub const MAX_QUANTIZED: f64 = 1_125_899_906_842_624.0; // 2^50

/// Attempts before rounding toward zero: at the norm bound of a privacy plan each succeeds with a chance of
/// at least 1 - e^(-1/2), so that all fail once in 10^13 updates.
pub const MAX_ATTEMPTS: u32 = 64;

/// Keeps a clipped update under the clip norm whatever the order of a reader's summation.
const CLIP_MARGIN: f64 = 1.0 / 4_194_304.0; // 2^-22

const TWO_POW_32: f64 = 4_294_967_296.0;
const NORM_LANES: usize = 8;
const NORM_TILE: usize = 4096;

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

impl QuantizeSettings {
    /// Refuses numbers that no privacy plan has.
    ///
    /// # Errors
    /// [`CoreError::QuantizeScale`], [`CoreError::NormBound`] or [`CoreError::Attempts`].
    pub(crate) fn check(&self) -> Result<(), CoreError> {
        if !(self.scale.is_finite() && self.scale > 0.0) {
            return Err(CoreError::QuantizeScale { found: self.scale });
        }
        if self.l2_squared_bound.is_nan() || self.l2_squared_bound < 0.0 {
            return Err(CoreError::NormBound {
                found: self.l2_squared_bound,
            });
        }
        if self.max_attempts == 0 {
            return Err(CoreError::Attempts { found: 0 });
        }
        Ok(())
    }
}

/// Returns the L2 norm of an update: sums of squares per tile of 4096, in eight interleaved parts,
/// added in the order of the tiles.
///
/// # Errors
/// [`CoreError::UpdateNotFinite`] with the first index and the count.
pub fn update_norm(update: &[f32]) -> Result<f64, CoreError> {
    let squared: f64 = update
        .chunks(NORM_TILE)
        .map(|tile| run_widest(TileNorm(tile)))
        .sum();
    // The square of a finite f32 is far from the end of f64, so only NaN and infinities reach it.
    if squared.is_finite() {
        return Ok(squared.sqrt());
    }
    let is_bad = |value: &f32| !value.is_finite();
    Err(CoreError::UpdateNotFinite {
        index: update.iter().position(is_bad).unwrap_or(0),
        count: update.iter().filter(|value| is_bad(value)).count(),
    })
}

/// Returns the factor that brings an update of this norm to at most the clip norm.
///
/// # Errors
/// [`CoreError::ClipNorm`] unless the clip norm is positive and finite.
pub fn clip_factor(norm: f64, clip_norm: f64) -> Result<f64, CoreError> {
    check_clip_norm(clip_norm)?;
    Ok(if norm <= clip_norm {
        1.0
    } else {
        clip_norm / norm * (1.0 - CLIP_MARGIN)
    })
}

pub(crate) fn check_clip_norm(clip_norm: f64) -> Result<(), CoreError> {
    if clip_norm.is_finite() && clip_norm > 0.0 {
        return Ok(());
    }
    Err(CoreError::ClipNorm { found: clip_norm })
}

/// Rounds `scale` times the update, and returns the attempts used.
///
/// `max_attempts + 1` says that every attempt was over the bound and the values were rounded
/// toward zero. One value after the other: the fused pass of `encode` gives the same integers.
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
    settings.check()?;
    update_norm(update)?;
    let scaled: Zeroizing<Vec<f64>> = Zeroizing::new(
        update
            .iter()
            .map(|value| f64::from(*value) * settings.scale)
            .collect(),
    );
    round_inside_bound(&scaled, out, settings, rounding_seed, Prg::ChaCha20)
}

/// Rounds values that are scaled already; `settings.scale` is not used.
///
/// # Errors
/// As [`quantize`], of which this is the second half.
pub fn round_inside_bound(
    scaled: &[f64],
    out: &mut [i64],
    settings: QuantizeSettings,
    rounding_seed: &Seed,
    prg: Prg,
) -> Result<u64, CoreError> {
    same_length("the output", scaled.len(), out.len())?;
    let in_range = |value: &f64| value.abs() < MAX_QUANTIZED;
    if let Some(index) = scaled.iter().position(|value| !in_range(value)) {
        return Err(CoreError::UpdateRange { index });
    }
    let mut random = Zeroizing::new(vec![0_u32; scaled.len()]);
    for attempt in 1..=settings.max_attempts {
        random.fill(0);
        RoundingStream::new(rounding_seed, prg, attempt).fill(&mut random, 0)?;
        for ((target, value), word) in out.iter_mut().zip(scaled).zip(random.iter()) {
            *target = round_at_random(*value, *word);
        }
        if within(squared_norm(out), settings.l2_squared_bound) {
            return Ok(u64::from(attempt));
        }
    }
    for (target, value) in out.iter_mut().zip(scaled) {
        *target = to_integer(value.trunc());
    }
    if within(squared_norm(out), settings.l2_squared_bound) {
        return Ok(u64::from(settings.max_attempts) + 1);
    }
    out.fill(0);
    Err(CoreError::UpdateNorm {
        bound: settings.l2_squared_bound,
    })
}

/// The random words of one attempt.
pub(crate) struct RoundingStream(MaskExpander);

impl RoundingStream {
    pub(crate) fn new(rounding_seed: &Seed, prg: Prg, attempt: u32) -> Self {
        let seed = rounding_seed.derive(&[], format!("rounding attempt {attempt}").as_bytes());
        Self(MaskExpander::new(&[Mask {
            seed: &seed,
            prg,
            sign: Sign::Add,
        }]))
    }

    /// Adds the words from coordinate `first` on (a multiple of 64) to `words`, which hold zeros.
    pub(crate) fn fill(&self, words: &mut [u32], first: usize) -> Result<(), CoreError> {
        self.0.add_to_tile(words, first as u64)
    }
}

/// Says whether a squared norm in integers is within the bound.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the cast floors, as meant
pub(crate) fn within(squared_norm: u128, bound: f64) -> bool {
    squared_norm <= bound as u128
}

fn round_at_random(value: f64, random: u32) -> i64 {
    let floor = value.floor();
    let is_up = f64::from(random) < (value - floor) * TWO_POW_32;
    to_integer(floor) + i64::from(is_up)
}

#[allow(clippy::cast_possible_truncation)] // whole, and at most 2^50
pub(crate) fn to_integer(value: f64) -> i64 {
    value as i64
}

fn squared_norm(values: &[i64]) -> u128 {
    values
        .iter()
        .map(|value| u128::from(value.unsigned_abs()).pow(2))
        .sum()
}

struct TileNorm<'a>(&'a [f32]);

impl Work for TileNorm<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut sums = [0.0; NORM_LANES];
        let groups = self.0.chunks_exact(NORM_LANES);
        let rest = groups.remainder();
        for values in groups {
            for index in 0..NORM_LANES {
                sums[index] += f64::from(values[index]) * f64::from(values[index]);
            }
        }
        for (sum, value) in sums.iter_mut().zip(rest) {
            *sum += f64::from(*value) * f64::from(*value);
        }
        sums.iter().sum()
    }
}
