//! From a float update to the packed masked input, tile by tile, without a full-size temporary.
//!
//! Pass 0: refuse what is not finite, and take the norm. Pass 1: for each rounding attempt, the squared
//! norm of the rounded vector, until one is within the bound. Pass 2, per tile of 4096 coordinates: clip
//! and scale, rotate, round as the chosen attempt does, multiply by the weight, add noise, sum up the
//! check coordinates, add the masks, pack. A tile's numbers stay in the second-level cache from the
//! first step to the last.
//!
//! Vector: [coordinates, zeros up to whole rotation blocks] [weight, where weights are used] [4 check
//! coordinates over everything before them]. Source: Kairouz, Liu and Steinke 2021, algorithm 1, and
//! Bonawitz et al. 2017, figure 4, round 2.
//!
//! Numbers stay exact: rounded values are whole f64 below 2^50, of which the ring keeps the low bits;
//! from there on all is arithmetic modulo 2^b, which weights and noise cannot overflow. That the sum of
//! all devices fits the ring is the privacy plan's part. Which attempt is used never changes after the
//! first byte is written. Threads share the tiles and do not change the result.
//!
//! Privacy: the output hides the update only as long as some mask stays unknown; the seeds of rounding
//! and noise are used for one call. Time depends on the number of attempts, thus on the data.

use std::ops::Range;

use zeroize::Zeroizing;

use crate::backend::wide::run_widest;
use crate::cancel::CancelFlag;
use crate::check::{CheckRows, CheckSums, CHECK_COORDINATES};
use crate::error::CoreError;
use crate::lanes::RingLane;
use crate::mask::{Mask, MaskExpander};
use crate::noise::NoiseSource;
use crate::pack::{pack_lanes, packed_bytes};
use crate::prg::Prg;
use crate::quantize::{
    check_clip_norm, clip_factor, update_norm, within, QuantizeSettings, RoundingStream,
    MAX_QUANTIZED,
};
use crate::ring::{same_length, RingBits};
use crate::rotation::Rotation;
use crate::rounding::{RoundToLanes, RoundedNorm, Rounding, Scale};
use crate::secret::Seed;
use crate::tiles::{run_jobs, split_tiles, TILE};

/// Whole f64 numbers up to here are summed without rounding.
const EXACT_SUM: f64 = 9_007_199_254_740_992.0; // 2^53

/// What a plan says about encoding.
pub struct EncodeSettings<'a> {
    /// L2 bound of the update, update units.
    pub clip_norm: f64,
    /// How the clipped update becomes integers.
    pub quantize: QuantizeSettings,
    /// The ring of the sum.
    pub ring: RingBits,
    /// The rotation before rounding, if there is one.
    pub rotation: Option<Rotation>,
    /// The weight, where the vector has a slot for it.
    pub weight: Option<u32>,
    /// The session; seed of the check coordinates.
    pub session_id: &'a [u8; 32],
    /// 1 to 64.
    pub threads: usize,
    /// Polled once per tile.
    pub cancel: Option<CancelFlag>,
}

impl EncodeSettings<'_> {
    /// Returns the length of the vector for an update of `dimension` coordinates.
    pub fn vector_length(&self, dimension: usize) -> usize {
        self.padded(dimension) + usize::from(self.weight.is_some()) + CHECK_COORDINATES
    }

    /// Returns the bytes of the packed vector, or `None` where that leaves `usize`.
    pub fn packed_bytes(&self, dimension: usize) -> Option<usize> {
        packed_bytes(self.vector_length(dimension), self.ring)
    }

    fn padded(&self, dimension: usize) -> usize {
        self.rotation
            .as_ref()
            .map_or(dimension, |rotation| rotation.padded(dimension))
    }

    fn poll(&self) -> Result<(), CoreError> {
        self.cancel.as_ref().map_or(Ok(()), CancelFlag::check)
    }
}

/// Returns the weight where the vector has a slot for it: where its bound is above 1.
///
/// # Errors
/// [`CoreError::Weight`] unless 0 <= weight <= bound, or both are 1; [`CoreError::WeightedNoise`] for
/// weights with noise, which would be too little for what a weight multiplies.
pub fn weight_slot(weight: i64, bound: i64, is_noised: bool) -> Result<Option<u32>, CoreError> {
    let refusal = CoreError::Weight {
        found: weight,
        bound,
    };
    if bound == 1 && weight == 1 {
        return Ok(None);
    }
    let is_weight = (2..=i64::from(u32::MAX)).contains(&bound) && weight <= bound;
    let slot = u32::try_from(weight).ok().filter(|_| is_weight);
    if slot.is_some() && is_noised {
        return Err(CoreError::WeightedNoise);
    }
    slot.map(Some).ok_or(refusal)
}

/// The secrets of one encoding, each used for one call.
pub struct EncodeSecrets<'a, N> {
    /// Rounds the update.
    pub rounding_seed: &'a Seed,
    /// Expands the rounding seed.
    pub rounding_prg: Prg,
    /// Draws this device's noise.
    pub noise: &'a N,
    /// Hide the result.
    pub masks: &'a [Mask<'a>],
}

/// Writes the packed masked input of an update to `packed`.
///
/// # Errors
/// [`CoreError::Length`] for a wrong size of `packed`; [`CoreError::ClipNorm`] and the errors of
/// [`QuantizeSettings`]; [`CoreError::UpdateNotFinite`], [`CoreError::UpdateRange`] and
/// [`CoreError::UpdateNorm`]; [`CoreError::Threads`], [`CoreError::ThreadStart`],
/// [`CoreError::StreamLength`] and [`CoreError::Cancelled`]. Then `packed` is garbage.
pub fn encode_and_mask<N: NoiseSource>(
    update: &[f32],
    settings: &EncodeSettings<'_>,
    secrets: &EncodeSecrets<'_, N>,
    packed: &mut [u8],
) -> Result<(), CoreError> {
    check_clip_norm(settings.clip_norm)?;
    settings.quantize.check()?;
    let size_bytes = settings.packed_bytes(update.len()).unwrap_or(usize::MAX);
    same_length("the packed vector", size_bytes, packed.len())?;
    let source = Source::new(update, settings)?;
    let attempt = source.choose_attempt(secrets)?;
    let rounding = attempt
        .map(|attempt| RoundingStream::new(secrets.rounding_seed, secrets.rounding_prg, attempt));
    if settings.ring.bits() <= u16::BITS {
        write::<u16, N>(&source, rounding.as_ref(), secrets, packed)
    } else {
        write::<u32, N>(&source, rounding.as_ref(), secrets, packed)
    }
}

/// The update with what was found out about it in pass 0.
struct Source<'a> {
    update: &'a [f32],
    settings: &'a EncodeSettings<'a>,
    /// Length with the zeros that fill the last rotation block.
    padded: usize,
    /// From update units to integers, clipping included.
    factor: f64,
    /// Bound on the norm of the scaled update.
    scaled_norm: f64,
}

impl<'a> Source<'a> {
    fn new(update: &'a [f32], settings: &'a EncodeSettings<'a>) -> Result<Self, CoreError> {
        let norm = update_norm(update)?;
        let scale = settings.quantize.scale;
        let factor = scale * clip_factor(norm, settings.clip_norm)?;
        let scaled_norm = norm.min(settings.clip_norm) * scale;
        // A rotated coordinate may carry the whole norm, so the norm is what must be in range.
        if scaled_norm >= MAX_QUANTIZED {
            let largest = |a: &usize, b: &usize| update[*a].abs().total_cmp(&update[*b].abs());
            let index = (0..update.len()).max_by(largest).unwrap_or(0);
            return Err(CoreError::UpdateRange { index });
        }
        Ok(Self {
            update,
            settings,
            padded: settings.padded(update.len()),
            factor,
            scaled_norm,
        })
    }

    /// Pass 1: returns the first attempt within the bound, or `None` for rounding toward zero.
    fn choose_attempt<N>(&self, secrets: &EncodeSecrets<'_, N>) -> Result<Option<u32>, CoreError> {
        let bound = self.settings.quantize.l2_squared_bound;
        #[allow(clippy::cast_precision_loss)] // a dimension is far below 2^53
        let longest = self.scaled_norm + (self.padded as f64).sqrt();
        // Rounding moves each coordinate by less than 1; the margin covers the rounding of f64.
        let longest_squared = longest * longest * (1.0 + 1e-9);
        if longest_squared <= bound {
            return Ok(Some(1));
        }
        let is_small = longest_squared < EXACT_SUM;
        for attempt in 1..=self.settings.quantize.max_attempts {
            let stream = RoundingStream::new(secrets.rounding_seed, secrets.rounding_prg, attempt);
            if within(self.squared_norm(Some(&stream), is_small)?, bound) {
                return Ok(Some(attempt));
            }
        }
        if within(self.squared_norm(None, is_small)?, bound) {
            return Ok(None);
        }
        Err(CoreError::UpdateNorm { bound })
    }

    fn squared_norm(
        &self,
        rounding: Option<&RoundingStream>,
        is_small: bool,
    ) -> Result<u128, CoreError> {
        let runs = split_tiles(self.padded.div_ceil(TILE), self.settings.threads)?;
        let sums = run_jobs(runs, |run| {
            let mut scratch = Scratch::new();
            let mut sum = 0_u128;
            for tile in run {
                self.settings.poll()?;
                let scaled = self.load_tile(tile, rounding, &mut scratch)?;
                sum += run_widest(RoundedNorm {
                    rounding: scaled,
                    is_small,
                });
            }
            Ok(sum)
        })?;
        Ok(sums.iter().sum())
    }

    /// Scales and rotates one tile, and lays its random words beside it.
    fn load_tile<'s>(
        &self,
        tile: usize,
        rounding: Option<&RoundingStream>,
        scratch: &'s mut Scratch,
    ) -> Result<Rounding<'s>, CoreError> {
        let first = tile * TILE;
        let length = TILE.min(self.padded - first);
        let scaled = &mut scratch.scaled[..length];
        let values = &self.update[first.min(self.update.len())..];
        let values = &values[..values.len().min(length)];
        scaled[values.len()..].fill(0.0);
        let is_rotated = self.settings.rotation.is_some();
        run_widest(Scale {
            values,
            factor: if is_rotated { 1.0 } else { self.factor },
            scaled,
        });
        if let Some(rotation) = &self.settings.rotation {
            rotation.rotate_tile(scaled, first, self.factor)?;
        }
        let Some(stream) = rounding else {
            return Ok(Rounding::TowardZero { scaled });
        };
        let random = &mut scratch.random[..length];
        random.fill(0);
        stream.fill(random, first)?;
        Ok(Rounding::AtRandom { scaled, random })
    }
}

/// Per thread: one tile before rounding, and its random words.
struct Scratch {
    scaled: Zeroizing<Vec<f64>>,
    random: Zeroizing<Vec<u32>>,
}

impl Scratch {
    fn new() -> Self {
        Self {
            scaled: Zeroizing::new(vec![0.0; TILE]),
            random: Zeroizing::new(vec![0; TILE]),
        }
    }
}

/// Pass 2: whole tiles by several threads, then what is left together with weight and checks.
fn write<L: RingLane, N: NoiseSource>(
    source: &Source<'_>,
    rounding: Option<&RoundingStream>,
    secrets: &EncodeSecrets<'_, N>,
    packed: &mut [u8],
) -> Result<(), CoreError> {
    let settings = source.settings;
    let writer = Writer::<L, N> {
        source,
        rounding,
        noise: secrets.noise,
        masks: &MaskExpander::new(secrets.masks),
        rows: &CheckRows::new(
            settings.session_id,
            settings.vector_length(source.update.len()),
        )?,
    };
    let whole_tiles = source.padded / TILE;
    let tile_bytes = TILE / 8 * settings.ring.bits() as usize;
    let (body, tail) = packed.split_at_mut(whole_tiles * tile_bytes);
    let runs = split_tiles(whole_tiles, settings.threads)?;
    let run_bytes = runs.first().map_or(1, Range::len) * tile_bytes;
    let jobs: Vec<_> = runs.into_iter().zip(body.chunks_mut(run_bytes)).collect();
    let mut sums = CheckSums::default();
    for part in run_jobs(jobs, |(run, packed)| {
        writer.write_tiles(run, tile_bytes, packed)
    })? {
        for (sum, part) in sums.iter_mut().zip(part) {
            *sum = sum.wrapping_add(part);
        }
    }
    writer.write_tail(whole_tiles, sums, tail)
}

struct Writer<'a, L, N> {
    source: &'a Source<'a>,
    rounding: Option<&'a RoundingStream>,
    noise: &'a N,
    masks: &'a MaskExpander,
    rows: &'a CheckRows<L>,
}

impl<L: RingLane, N: NoiseSource> Writer<'_, L, N> {
    fn write_tiles(
        &self,
        run: Range<usize>,
        tile_bytes: usize,
        packed: &mut [u8],
    ) -> Result<CheckSums, CoreError> {
        let mut scratch = Scratch::new();
        let mut lanes = Zeroizing::new(vec![L::default(); TILE]);
        let mut sums = CheckSums::default();
        for (tile, packed) in run.zip(packed.chunks_mut(tile_bytes)) {
            self.source.settings.poll()?;
            self.encode_tile(tile, &mut scratch, &mut lanes)?;
            self.rows.add(&mut sums, &lanes, tile * TILE);
            self.mask_and_pack(&mut lanes, tile * TILE, packed)?;
        }
        Ok(sums)
    }

    fn write_tail(
        &self,
        tile: usize,
        mut sums: CheckSums,
        packed: &mut [u8],
    ) -> Result<(), CoreError> {
        let settings = self.source.settings;
        let first = tile * TILE;
        let mut lanes = Zeroizing::new(vec![L::default(); self.source.padded - first]);
        if !lanes.is_empty() {
            self.encode_tile(tile, &mut Scratch::new(), &mut lanes)?;
        }
        lanes.reserve_exact(1 + CHECK_COORDINATES);
        lanes.extend(settings.weight.map(L::from_word));
        self.rows.add(&mut sums, &lanes, first);
        lanes.extend(sums.map(L::from_word));
        self.mask_and_pack(&mut lanes, first, packed)
    }

    /// Everything up to the plain ring values of one tile.
    fn encode_tile(
        &self,
        tile: usize,
        scratch: &mut Scratch,
        lanes: &mut [L],
    ) -> Result<(), CoreError> {
        let rounding = self.source.load_tile(tile, self.rounding, scratch)?;
        run_widest(RoundToLanes {
            rounding,
            weight: L::from_word(self.source.settings.weight.unwrap_or(1)),
            lanes,
        });
        self.noise
            .draw_tile(tile, lanes.len(), &mut |place, noise| {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // modulo 2^b
                let noise = L::from_word(noise as u32);
                lanes[place] = lanes[place].plus(noise);
            })
    }

    fn mask_and_pack(
        &self,
        lanes: &mut [L],
        first: usize,
        packed: &mut [u8],
    ) -> Result<(), CoreError> {
        self.masks.add_to_tile(lanes, first as u64)?;
        pack_lanes(lanes, self.source.settings.ring, packed);
        Ok(())
    }
}
