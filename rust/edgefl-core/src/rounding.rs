//! The inner loops of rounding: to a squared norm, or to ring values.
//!
//! They give the integers of `quantize::round_inside_bound`, written so that a compiler makes vector
//! code of them: the floor comes from adding and taking off 1.5 * 2^52, which rounds to a neighbouring
//! integer, and a comparison.

#![allow(clippy::inline_always)] // what is not inlined is not compiled for wide vectors

use crate::backend::wide::Work;
use crate::lanes::{low_word, RingLane, SHIFTER};
use crate::quantize::to_integer;

const TWO_POW_32: f64 = 4_294_967_296.0;
const SUMS: usize = 8;

/// Values below 2^50 in magnitude, and how they are rounded.
pub(crate) enum Rounding<'a> {
    /// Up with the probability of the fraction.
    AtRandom {
        /// The values.
        scaled: &'a [f64],
        /// One word for each.
        random: &'a [u32],
    },
    /// The fraction is cut off.
    TowardZero {
        /// The values.
        scaled: &'a [f64],
    },
}

/// Sums the squares of the rounded values.
pub(crate) struct RoundedNorm<'a> {
    pub(crate) rounding: Rounding<'a>,
    /// The sum is below 2^53, so that f64 holds it, and every part of it, without error.
    pub(crate) is_small: bool,
}

impl Work for RoundedNorm<'_> {
    type Output = u128;

    #[inline(always)]
    fn run(self) -> u128 {
        match (self.rounding, self.is_small) {
            (Rounding::AtRandom { scaled, random }, true) => whole(sum_of_squares(scaled, random)),
            (Rounding::AtRandom { scaled, random }, false) => scaled
                .iter()
                .zip(random)
                .map(|(value, word)| square(round_at_random(*value, *word)))
                .sum(),
            (Rounding::TowardZero { scaled }, _) => {
                scaled.iter().map(|value| square(value.trunc())).sum()
            }
        }
    }
}

/// Exact by [`RoundedNorm::is_small`], so that the order of the additions does not matter.
#[inline(always)]
fn sum_of_squares(scaled: &[f64], random: &[u32]) -> f64 {
    let mut sums = [0.0; SUMS];
    let values = scaled.chunks_exact(SUMS);
    let words = random.chunks_exact(SUMS);
    let rest = values.remainder().iter().zip(words.remainder());
    for (values, words) in values.zip(words) {
        for index in 0..SUMS {
            let rounded = round_at_random(values[index], words[index]);
            sums[index] += rounded * rounded;
        }
    }
    for (value, word) in rest {
        let rounded = round_at_random(*value, *word);
        sums[0] += rounded * rounded;
    }
    sums.iter().sum()
}

/// Widens an update's values and multiplies them.
pub(crate) struct Scale<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) factor: f64,
    pub(crate) scaled: &'a mut [f64],
}

impl Work for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (target, value) in self.scaled.iter_mut().zip(self.values) {
            *target = f64::from(*value) * self.factor;
        }
    }
}

/// Writes the rounded values times the weight, modulo the lane's width.
pub(crate) struct RoundToLanes<'a, L> {
    pub(crate) rounding: Rounding<'a>,
    pub(crate) weight: L,
    pub(crate) lanes: &'a mut [L],
}

impl<L: RingLane> Work for RoundToLanes<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let to_lane = |rounded| L::from_word(low_word(rounded)).times(self.weight);
        match self.rounding {
            Rounding::AtRandom { scaled, random } => {
                for ((lane, value), word) in self.lanes.iter_mut().zip(scaled).zip(random) {
                    *lane = to_lane(round_at_random(*value, *word));
                }
            }
            Rounding::TowardZero { scaled } => {
                for (lane, value) in self.lanes.iter_mut().zip(scaled) {
                    *lane = to_lane(value.trunc());
                }
            }
        }
    }
}

#[inline(always)]
fn round_at_random(value: f64, random: u32) -> f64 {
    let nearest = (value + SHIFTER) - SHIFTER;
    let floor = nearest - if nearest > value { 1.0 } else { 0.0 };
    let is_up = f64::from(random) < (value - floor) * TWO_POW_32;
    floor + if is_up { 1.0 } else { 0.0 }
}

fn square(rounded: f64) -> u128 {
    u128::from(to_integer(rounded).unsigned_abs()).pow(2)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole, from 0 to 2^53
fn whole(sum: f64) -> u128 {
    sum as u128
}
