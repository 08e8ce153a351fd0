//! Check coordinates: four public random linear combinations of a ring vector.
//!
//! Each device appends them to its vector; being linear they survive summing, so the aggregator
//! compares those of the unmasked sum with the summed ones. Finds corruption and wrong masks; it is no
//! defence against a device that lies on purpose, for the coefficients are public.
//!
//! Coefficient of row j at coordinate i, modulo 2^b: place factor p(i mod 1024) times tile factor
//! t(i div 1024). p(k) is word k (u32 LE) of the ChaCha20 stream keyed by HKDF-SHA256(session id, no
//! salt, info `check row j`), t(k) is word k of that with info `check row j tiles`; the lowest bit of
//! each is set. So every coefficient is odd and uniform over the odd numbers: one wrong coordinate
//! always shows, in every row. Of errors that do not depend on the session id, a row misses at most
//! one in 2^(n-2) / n, where n = b - v and 2^v is the largest power of two that divides them all: given
//! the tile factors, a row is a linear form in the place factors, whose coefficients have 2^u in common
//! with a chance of at most 2^(1-u). Rows miss independently. Two factors instead of one long
//! stream save nine tenths of the time: about 0.3 ns per coordinate for all four rows.

#![allow(clippy::inline_always)] // what is not inlined is not compiled for wide vectors

use zeroize::Zeroizing;

use crate::backend::wide::{run_widest, Work};
use crate::error::CoreError;
use crate::kdf;
use crate::lanes::RingLane;
use crate::prg::Keystream;
use crate::ring::RingBits;

/// How many check coordinates there are.
pub const CHECK_COORDINATES: usize = 4;

/// Coordinates with one tile factor.
const PLACES: usize = 1024;

/// Sums of one vector or of a part of it, not yet reduced.
pub(crate) type CheckSums = [u32; CHECK_COORDINATES];

/// The coefficients of one session for vectors up to a length.
pub(crate) struct CheckRows<L> {
    places: [Vec<L>; CHECK_COORDINATES],
    tiles: Vec<CheckSums>,
}

impl<L: RingLane> CheckRows<L> {
    /// Expands the factors for vectors of `length` coordinates.
    ///
    /// # Errors
    /// [`CoreError::StreamLength`] for more than 2^46 coordinates.
    pub(crate) fn new(session_id: &[u8; 32], length: usize) -> Result<Self, CoreError> {
        let mut places: [Vec<L>; CHECK_COORDINATES] = Default::default();
        let mut tiles = vec![[0; CHECK_COORDINATES]; length.div_ceil(PLACES)];
        for (row, factors) in places.iter_mut().enumerate() {
            let words = odd_words(session_id, &format!("check row {row}"), length.min(PLACES))?;
            factors.extend(words.map(L::from_word));
            let words = odd_words(session_id, &format!("check row {row} tiles"), tiles.len())?;
            for (factors, word) in tiles.iter_mut().zip(words) {
                factors[row] = word;
            }
        }
        Ok(Self { places, tiles })
    }

    /// Adds what a run of coordinates contributes; `first` is a multiple of 1024.
    pub(crate) fn add(&self, sums: &mut CheckSums, values: &[L], first: usize) {
        let tiles = self.tiles.iter().skip(first / PLACES);
        for (part, factors) in values.chunks(PLACES).zip(tiles) {
            let parts = run_widest(PlaceSums {
                values: part,
                places: &self.places,
            });
            for ((sum, part), factor) in sums.iter_mut().zip(parts).zip(factors) {
                *sum = sum.wrapping_add(part.wrapping_mul(*factor));
            }
        }
    }
}

/// Returns the check coordinates of a vector modulo 2^b.
///
/// # Errors
/// [`CoreError::StreamLength`] for more than 2^46 values.
pub fn check_coordinates(
    values: &[u32],
    ring: RingBits,
    session_id: &[u8; 32],
) -> Result<[u32; CHECK_COORDINATES], CoreError> {
    let mut sums = CheckSums::default();
    CheckRows::new(session_id, values.len())?.add(&mut sums, values, 0);
    Ok(sums.map(|sum| sum & ring.mask()))
}

fn odd_words(
    session_id: &[u8; 32],
    info: &str,
    count: usize,
) -> Result<impl Iterator<Item = u32>, CoreError> {
    let key = kdf::derive_seed(session_id, &[], info.as_bytes());
    let mut bytes = vec![0; count * 4];
    Keystream::new(&key).fill(&mut bytes)?;
    Ok((0..count).map(move |index| {
        let word = &bytes[index * 4..index * 4 + 4];
        u32::from_le_bytes([word[0], word[1], word[2], word[3]]) | 1
    }))
}

struct PlaceSums<'a, L> {
    values: &'a [L],
    places: &'a [Vec<L>; CHECK_COORDINATES],
}

impl<L: RingLane> Work for PlaceSums<'_, L> {
    type Output = CheckSums;

    #[inline(always)]
    fn run(self) -> CheckSums {
        let [a, b, c, d] = self.places.each_ref().map(Vec::as_slice);
        let mut sums = Zeroizing::new([L::default(); CHECK_COORDINATES]);
        for ((((value, a), b), c), d) in self.values.iter().zip(a).zip(b).zip(c).zip(d) {
            sums[0] = sums[0].plus(value.times(*a));
            sums[1] = sums[1].plus(value.times(*b));
            sums[2] = sums[2].plus(value.times(*c));
            sums[3] = sums[3].plus(value.times(*d));
        }
        [sums[0], sums[1], sums[2], sums[3]].map(L::to_word)
    }
}
