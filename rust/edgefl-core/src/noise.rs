//! Skellam noise: the difference of two Poisson draws, from an exact integer table.
//!
//! Source of the mechanism: Agarwal, Kairouz and Liu 2021. Sampler: ours, without floating point
//! or a mathematics library, so that every platform draws the same integers from one seed.
//!
//! Let lambda be half the variance, in units of 2^-16, rounded up. The weights start with 2^84 at
//! the mode and follow w(k+1) = w(k) * lambda / (k+1) outwards on both sides, rounded down, until
//! they are zero. A draw takes 128 bits of the ChaCha20 stream, keeps as many low bits as the total
//! W has, draws again while the number is not below W, and looks it up in the running sums.
//!
//! Error: at distance j from the mode the weight is short of the true one by less than j, so the
//! total variation distance to Poisson is at most J^2 / W for J steps per side; at lambda = 2^24
//! that is below 2^-66, and less for smaller lambda. The support is cut where the true weight is
//! below about 2^-84 of the mode (some 10.8 standard deviations); the cut is part of that bound. The
//! privacy accounting may add 2^-65 per coordinate and part to delta. Larger lambda is split into
//! equal parts of at most 2^24, each drawn by itself: sums of independent Poissons are Poisson.
//!
//! Not constant time: search and rejection depend on the draw. An observer who times one device's
//! call to the nanosecond is outside the threat model. Cost: about 100 ns per coordinate, plus the
//! table (up to 90,000 entries of 16 bytes).

use zeroize::Zeroizing;

use crate::error::CoreError;
use crate::prg::RandomWords;
use crate::secret::Seed;
use crate::tiles::TILE;

/// Largest variance: 4,096 parts of lambda = 2^24.
pub const MAX_NOISE_VARIANCE: f64 = 137_438_953_472.0; // 2^37

const FRACTION_BITS: u32 = 16;
const UNITS_PER_VARIANCE: f64 = 32_768.0; // 2^FRACTION_BITS / 2
const MAX_PART_UNITS: u64 = 1 << 40; // lambda = 2^24
const MODE_WEIGHT: u128 = 1 << 84;

/// The Poisson distribution of one lambda, ready to draw from.
pub struct PoissonTable {
    first: i64,
    cumulative: Vec<u128>,
    guide: Vec<usize>,
    guide_shift: u32,
    draw_mask: u128,
}

impl PoissonTable {
    /// Builds the table for lambda in units of 2^-16, at most 2^40 of them.
    ///
    /// # Errors
    /// [`CoreError::NoiseVariance`] for zero or a larger lambda.
    pub fn new(lambda_units: u64) -> Result<Self, CoreError> {
        if !(1..=MAX_PART_UNITS).contains(&lambda_units) {
            #[allow(clippy::cast_precision_loss)] // for a message
            let found = lambda_units as f64 / UNITS_PER_VARIANCE;
            return Err(CoreError::NoiseVariance { found });
        }
        let (first, weights) = poisson_weights(lambda_units);
        let mut total = 0_u128;
        let cumulative: Vec<u128> = weights
            .into_iter()
            .map(|weight| {
                total += weight;
                total
            })
            .collect();
        let total_bits = u128::BITS - total.leading_zeros();
        let guide_bits = cumulative.len().next_power_of_two().trailing_zeros();
        let guide_shift = total_bits - guide_bits;
        let guide = guide_table(&cumulative, guide_bits, guide_shift);
        Ok(Self {
            first,
            cumulative,
            guide,
            guide_shift,
            draw_mask: u128::MAX >> (u128::BITS - total_bits),
        })
    }

    /// Returns the smallest value that can be drawn.
    pub fn first(&self) -> i64 {
        self.first
    }

    /// Returns the running sums of the weights, from the smallest value on; the last is W.
    pub fn cumulative(&self) -> &[u128] {
        &self.cumulative
    }

    /// Draws one value.
    ///
    /// # Errors
    /// [`CoreError::StreamLength`] at the end of the stream.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // below 2^25
    pub fn draw(&self, words: &mut RandomWords) -> Result<i64, CoreError> {
        let total = self.cumulative.last().copied().unwrap_or(0);
        let number = loop {
            let candidate = words.next_u128()? & self.draw_mask;
            if candidate < total {
                break candidate;
            }
        };
        let slot = (number >> self.guide_shift) as usize;
        let start = self.guide[slot];
        let end = (self.guide[slot + 1] + 1).min(self.cumulative.len());
        let offset = self.cumulative[start..end].partition_point(|sum| *sum <= number);
        Ok(self.first + (start + offset) as i64)
    }
}

/// Integer noise that is drawn tile by tile, so that threads give the same integers.
pub trait NoiseSource: Sync {
    /// Hands the noise of one tile of 4096 coordinates to `take`, which gets each place in the tile
    /// at most once.
    ///
    /// # Errors
    /// [`CoreError::StreamLength`] at the end of the tile's stream.
    fn draw_tile(
        &self,
        tile_index: usize,
        coordinates: usize,
        take: &mut dyn FnMut(usize, i64),
    ) -> Result<(), CoreError>;
}

/// No noise at all: the exact mode.
pub struct NoNoise;

impl NoiseSource for NoNoise {
    fn draw_tile(
        &self,
        _tile_index: usize,
        _coordinates: usize,
        _take: &mut dyn FnMut(usize, i64),
    ) -> Result<(), CoreError> {
        Ok(())
    }
}

/// Skellam noise of one variance from one seed.
///
/// Each tile has a seed of its own, HKDF-SHA256 of the noise seed with info `noise tile t`. Draws per
/// coordinate, for each part: first the positive Poisson, then the negative one.
///
/// Privacy: noise is drawn for one update and never again under the same masks; the seed must be
/// fresh, or two updates differ by the data alone.
pub struct SkellamNoise {
    table: PoissonTable,
    parts: u64,
    seed: Seed,
}

impl SkellamNoise {
    /// Builds the sampler; the variance is rounded up to a multiple of 2^-15. `None` for a variance
    /// of zero.
    ///
    /// # Errors
    /// [`CoreError::NoiseVariance`].
    pub fn new(variance: f64, noise_seed: &Seed) -> Result<Option<Self>, CoreError> {
        let units = lambda_units_of(variance)?;
        if units == 0 {
            return Ok(None);
        }
        let parts = units.div_ceil(MAX_PART_UNITS);
        Ok(Some(Self {
            table: PoissonTable::new(units.div_ceil(parts))?,
            parts,
            seed: noise_seed.duplicate(),
        }))
    }
}

impl NoiseSource for SkellamNoise {
    fn draw_tile(
        &self,
        tile_index: usize,
        coordinates: usize,
        take: &mut dyn FnMut(usize, i64),
    ) -> Result<(), CoreError> {
        let seed = self
            .seed
            .derive(&[], format!("noise tile {tile_index}").as_bytes());
        let mut words = RandomWords::new(&seed);
        let mut noise = Zeroizing::new(0_i64);
        for place in 0..coordinates {
            *noise = 0;
            for _ in 0..self.parts {
                *noise += self.table.draw(&mut words)?;
                *noise -= self.table.draw(&mut words)?;
            }
            take(place, *noise);
        }
        Ok(())
    }
}

/// Adds Skellam noise to each value; a variance of zero adds nothing.
///
/// # Errors
/// [`CoreError::NoiseVariance`], [`CoreError::NoiseOverflow`] or [`CoreError::StreamLength`].
pub fn add_skellam_noise(
    values: &mut [i64],
    variance: f64,
    noise_seed: &Seed,
) -> Result<(), CoreError> {
    let Some(source) = SkellamNoise::new(variance, noise_seed)? else {
        return Ok(());
    };
    for (tile_index, tile) in values.chunks_mut(TILE).enumerate() {
        let mut overflow = None;
        source.draw_tile(
            tile_index,
            tile.len(),
            &mut |place, noise| match tile[place].checked_add(noise) {
                Some(sum) => tile[place] = sum,
                None => overflow = overflow.or(Some(tile_index * TILE + place)),
            },
        )?;
        if let Some(index) = overflow {
            return Err(CoreError::NoiseOverflow { index });
        }
    }
    Ok(())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole and at most 2^52
fn lambda_units_of(variance: f64) -> Result<u64, CoreError> {
    if (0.0..=MAX_NOISE_VARIANCE).contains(&variance) {
        Ok((variance * UNITS_PER_VARIANCE).ceil() as u64)
    } else {
        Err(CoreError::NoiseVariance { found: variance })
    }
}

/// Returns the smallest value with a weight, and the weights from there on.
fn poisson_weights(lambda_units: u64) -> (i64, Vec<u128>) {
    let mode = lambda_units >> FRACTION_BITS;
    let lambda = u128::from(lambda_units);
    let mut weights = Vec::new();
    let (mut k, mut weight) = (mode, MODE_WEIGHT);
    while k > 0 {
        weight = weight * (u128::from(k) << FRACTION_BITS) / lambda;
        if weight == 0 {
            break;
        }
        weights.push(weight);
        k -= 1;
    }
    weights.reverse();
    #[allow(clippy::cast_possible_wrap)] // at most 2^24
    let first = k as i64;
    (k, weight) = (mode, MODE_WEIGHT);
    while weight > 0 {
        weights.push(weight);
        k += 1;
        weight = weight * lambda / (u128::from(k) << FRACTION_BITS);
    }
    (first, weights)
}

/// Entry s is the index of the first running sum above s * 2^shift, for a short search.
fn guide_table(cumulative: &[u128], guide_bits: u32, guide_shift: u32) -> Vec<usize> {
    let mut index = 0;
    (0..=1_u128 << guide_bits)
        .map(|slot| {
            while index < cumulative.len() && cumulative[index] <= slot << guide_shift {
                index += 1;
            }
            index
        })
        .collect()
}
