//! Shamir's secret sharing of 32 bytes over the field of 2^61 - 1 elements. Source: Shamir 1979.
//!
//! The secret is cut into 5 limbs of 52 bits (the last holds 48), each shared by its own
//! polynomial; a share is the 5 values at one point, 8 bytes LE each. Coefficients are uniform
//! field elements, drawn by rejection from the ChaCha20 stream of a seed: degree 1 first, and the
//! five limbs of a degree in order; of several secrets one after the other, so that no two share a
//! coefficient. Points are public, secrets and coefficients are not: arithmetic on the latter takes
//! constant time. Cost of n shares with threshold t: 5 n t multiplications to split, t^2 / 3 for the
//! weights of one set of points and 5 t for each secret to combine.
//!
//! A wrong share of the right form is not noticed here (only when the result leaves the range of
//! the limbs); the caller compares the result with a public key or a commitment.

#![deny(clippy::indexing_slicing)]

use zeroize::{Zeroize, Zeroizing};

use crate::batch::check_count;
use crate::error::CoreError;
use crate::field::{add, invert_all, lazy_multiply_add, multiply, reduce, subtract, MODULUS};
use crate::prg::RandomWords;
use crate::secret::{Seed, SECRET_BYTES};

/// Bytes of a share.
pub const SHARE_BYTES: usize = LIMBS * 8;
/// Largest point.
pub const MAX_POINT: i64 = 1 << POINT_BITS;

const POINT_BITS: u32 = 16;
const LIMBS: usize = 5;
const LIMB_BITS: u32 = 52;
const LIMB_MASK: u64 = (1 << LIMB_BITS) - 1;
const TOP_LIMB_BITS: u32 = 48;

type Limbs = [u64; LIMBS];

/// A share as it came from its holder: the point, and the bytes.
#[derive(Clone, Copy)]
pub struct Share<'a> {
    /// One plus the position in the signed cohort.
    pub point: i64,
    /// 5 values of 8 bytes, little-endian, each below 2^61 - 1.
    pub bytes: &'a [u8],
}

/// The shares of one secret, in the order of the points.
pub type Shares = Vec<Zeroizing<[u8; SHARE_BYTES]>>;

/// Splits a secret so that any `threshold` of the shares give it back and fewer say nothing.
///
/// # Errors
/// [`CoreError::ShareThreshold`], [`CoreError::SharePoint`] or [`CoreError::ShareDuplicate`].
pub fn split_secret(
    secret: &Seed,
    threshold: i64,
    points: &[i64],
    coefficient_seed: &Seed,
) -> Result<Shares, CoreError> {
    let mut lists = split_secrets(&[secret], threshold, points, coefficient_seed)?;
    Ok(lists.pop().unwrap_or_default())
}

/// Splits several secrets at the same points, each by polynomials of its own.
///
/// # Errors
/// As [`split_secret`].
pub fn split_secrets(
    secrets: &[&Seed],
    threshold: i64,
    points: &[i64],
    coefficient_seed: &Seed,
) -> Result<Vec<Shares>, CoreError> {
    let degree = usize::try_from(threshold)
        .ok()
        .filter(|threshold| (1..=points.len()).contains(threshold))
        .ok_or(CoreError::ShareThreshold {
            threshold,
            points: points.len(),
        })?
        - 1;
    let points = check_points(points)?;
    let mut words = RandomWords::new(coefficient_seed);
    let mut coefficients = Zeroizing::new(vec![[0; LIMBS]; degree]);
    secrets
        .iter()
        .map(|secret| {
            let constants = Zeroizing::new(limbs_of(secret));
            for limb in coefficients.iter_mut().flatten() {
                *limb = uniform_element(&mut words)?;
            }
            Ok(points
                .iter()
                .map(|point| evaluate(&coefficients, &constants, *point))
                .collect())
        })
        .collect()
}

/// Combines shares to the secret. Checks all of them and uses the first `threshold`.
///
/// # Errors
/// [`CoreError::ShareThreshold`], [`CoreError::TooFewShares`], [`CoreError::SharePoint`],
/// [`CoreError::ShareDuplicate`], [`CoreError::ShareLength`], [`CoreError::ShareRange`] or
/// [`CoreError::ShareSecret`].
pub fn combine_shares(shares: &[Share<'_>], threshold: i64) -> Result<Seed, CoreError> {
    let points: Vec<i64> = shares.iter().map(|share| share.point).collect();
    let weights = Weights::new(&points, threshold)?;
    weights
        .combine(shares.iter().copied())?
        .ok_or(CoreError::ShareSecret)
}

/// Combines many secrets whose shares sit at the same points; list s holds those of secret s.
///
/// What combines to no 32-byte secret is `None`. Checks all shares, uses the first `threshold`.
///
/// # Errors
/// As [`combine_shares`] but for `ShareSecret`, and [`CoreError::BatchLength`].
pub fn combine_many(
    points: &[i64],
    lists: &[Vec<&[u8]>],
    threshold: i64,
) -> Result<Vec<Option<Seed>>, CoreError> {
    let weights = Weights::new(points, threshold)?;
    lists
        .iter()
        .map(|list| {
            check_count("share", points.len(), list.len())?;
            weights.combine(points.iter().zip(list).map(|(point, bytes)| Share {
                point: *point,
                bytes,
            }))
        })
        .collect()
}

/// Lagrange's weights of the first points for the value at zero. Points are public.
struct Weights(Vec<u64>);

impl Weights {
    fn new(points: &[i64], threshold: i64) -> Result<Self, CoreError> {
        let needed = usize::try_from(threshold)
            .ok()
            .filter(|needed| *needed > 0)
            .ok_or(CoreError::ShareThreshold {
                threshold,
                points: points.len(),
            })?;
        if points.len() < needed {
            return Err(CoreError::TooFewShares {
                threshold,
                found: points.len(),
            });
        }
        let mut points = check_points(points)?;
        points.truncate(needed);
        let numerator = points.iter().copied().fold(1, multiply);
        let mut weights: Vec<u64> = points
            .iter()
            .map(|point| multiply(*point, product_of_differences(&points, *point)))
            .collect();
        invert_all(&mut weights);
        for weight in &mut weights {
            *weight = multiply(*weight, numerator);
        }
        Ok(Self(weights))
    }

    fn combine<'a>(
        &self,
        shares: impl Iterator<Item = Share<'a>>,
    ) -> Result<Option<Seed>, CoreError> {
        let mut weights = self.0.iter();
        let mut secret = Zeroizing::new([0; LIMBS]);
        let mut value = Zeroizing::new([0; LIMBS]);
        for share in shares {
            decode(&share, &mut value)?;
            if let Some(weight) = weights.next() {
                for (sum, limb) in secret.iter_mut().zip(value.iter()) {
                    *sum = add(*sum, multiply(*weight, *limb));
                }
            }
        }
        Ok(seed_of(&secret))
    }
}

fn check_points(points: &[i64]) -> Result<Vec<u64>, CoreError> {
    let mut seen = vec![0_u64; (1 << POINT_BITS) / 64 + 1];
    points
        .iter()
        .map(|point| {
            let point = *point;
            let index = usize::try_from(point)
                .ok()
                .filter(|_| (1..=MAX_POINT).contains(&point))
                .ok_or(CoreError::SharePoint { point })?;
            let word = seen
                .get_mut(index / 64)
                .expect("infallible because the table covers the largest point");
            let bit = 1 << (index % 64);
            if *word & bit != 0 {
                return Err(CoreError::ShareDuplicate { point });
            }
            *word |= bit;
            Ok(index as u64)
        })
        .collect()
}

/// Rejects the one 61-bit number outside the field; that it was drawn says nothing of the rest.
fn uniform_element(words: &mut RandomWords) -> Result<u64, CoreError> {
    loop {
        let candidate = words.next_u64()? & MODULUS;
        if candidate != MODULUS {
            return Ok(candidate);
        }
    }
}

/// Horner's rule on all limbs, reduced at the end. A point has 17 bits at most.
fn evaluate(coefficients: &[Limbs], constants: &Limbs, point: u64) -> Zeroizing<[u8; SHARE_BYTES]> {
    // A plain array, which stays in registers; it is wiped below.
    let mut value = [0; LIMBS];
    for coefficient in coefficients.iter().rev() {
        horner_step(&mut value, point, coefficient);
    }
    horner_step(&mut value, point, constants);
    let mut bytes = Zeroizing::new([0; SHARE_BYTES]);
    for (target, limb) in bytes.chunks_exact_mut(8).zip(value) {
        target.copy_from_slice(&reduce(limb).to_le_bytes());
    }
    value.zeroize();
    bytes
}

#[inline]
fn horner_step(value: &mut Limbs, point: u64, coefficient: &Limbs) {
    for (limb, addend) in value.iter_mut().zip(coefficient) {
        *limb = lazy_multiply_add(*limb, point, *addend);
    }
}

/// Multiplies (point - own) over all other points. Works on public points only.
fn product_of_differences(points: &[u64], own: u64) -> u64 {
    // Differences have 16 bits, so that three of them make one factor.
    let size = points.chunks(3).fold(1, |product, run| {
        let factor = run
            .iter()
            .filter(|point| **point != own)
            .map(|point| point.abs_diff(own))
            .product();
        lazy_multiply_add(product, factor, 0)
    });
    let size = reduce(size);
    if points.iter().filter(|point| **point < own).count() % 2 == 0 {
        size
    } else {
        subtract(0, size)
    }
}

fn decode(share: &Share<'_>, value: &mut Limbs) -> Result<(), CoreError> {
    if share.bytes.len() != SHARE_BYTES {
        return Err(CoreError::ShareLength {
            found: share.bytes.len(),
        });
    }
    let mut is_canonical = true;
    for (limb, source) in value.iter_mut().zip(share.bytes.chunks_exact(8)) {
        let mut word = [0; 8];
        word.copy_from_slice(source);
        *limb = u64::from_le_bytes(word);
        is_canonical &= *limb < MODULUS;
    }
    if is_canonical {
        Ok(())
    } else {
        Err(CoreError::ShareRange { point: share.point })
    }
}

fn limbs_of(secret: &Seed) -> Limbs {
    let mut words = Zeroizing::new([0_u64; 4]);
    for (word, source) in words.iter_mut().zip(secret.export_bytes().chunks_exact(8)) {
        let mut bytes = Zeroizing::new([0; 8]);
        bytes.copy_from_slice(source);
        *word = u64::from_le_bytes(*bytes);
    }
    let [w0, w1, w2, w3] = *words;
    [
        w0 & LIMB_MASK,
        (w0 >> 52 | w1 << 12) & LIMB_MASK,
        (w1 >> 40 | w2 << 24) & LIMB_MASK,
        (w2 >> 28 | w3 << 36) & LIMB_MASK,
        w3 >> 16,
    ]
}

/// Returns nothing when a limb is out of its range.
fn seed_of(limbs: &Limbs) -> Option<Seed> {
    let [l0, l1, l2, l3, l4] = *limbs;
    // All limbs are judged at once, so that which of them was wrong does not show.
    if (l0 | l1 | l2 | l3) >> LIMB_BITS | l4 >> TOP_LIMB_BITS != 0 {
        return None;
    }
    let words = Zeroizing::new([
        l0 | l1 << 52,
        l1 >> 12 | l2 << 40,
        l2 >> 24 | l3 << 28,
        l3 >> 36 | l4 << 16,
    ]);
    let mut seed = Seed::zero();
    let bytes: &mut [u8; SECRET_BYTES] = seed.bytes_mut();
    for (target, word) in bytes.chunks_exact_mut(8).zip(words.iter()) {
        target.copy_from_slice(&word.to_le_bytes());
    }
    Some(seed)
}
