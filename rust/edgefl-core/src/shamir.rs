//! Shamir's secret sharing of 32 bytes over the field of 2^61 - 1 elements. Source: Shamir 1979.
//!
//! The secret is cut into 5 limbs of 52 bits (the last holds 48), each shared by its own
//! polynomial; a share is the 5 values at one point, 8 bytes LE each. Coefficients are uniform
//! field elements, drawn by rejection from the ChaCha20 stream of a seed: degree 1 first, and the
//! five limbs of a degree in order. Points are public, secrets and coefficients are not: arithmetic
//! on the latter takes constant time. Cost: n * t * 5 multiplications to split, t^2 to combine.
//!
//! A wrong share of the right form is not noticed here (only when the result leaves the range of
//! the limbs); the caller compares the result with a public key or a commitment.

#![deny(clippy::indexing_slicing)]

use zeroize::{Zeroize, Zeroizing};

use crate::error::CoreError;
use crate::field::{add, invert, multiply, subtract, MODULUS};
use crate::prg::RandomWords;
use crate::secret::{Seed, SECRET_BYTES};

/// Bytes of a share.
pub const SHARE_BYTES: usize = LIMBS * 8;
/// Largest point.
pub const MAX_POINT: i64 = 1 << 16;

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

/// Splits a secret so that any `threshold` of the shares give it back and fewer say nothing.
///
/// # Errors
/// [`CoreError::ShareThreshold`], [`CoreError::SharePoint`] or [`CoreError::ShareDuplicate`].
pub fn split_secret(
    secret: &Seed,
    threshold: i64,
    points: &[i64],
    coefficient_seed: &Seed,
) -> Result<Vec<Zeroizing<[u8; SHARE_BYTES]>>, CoreError> {
    let degree = usize::try_from(threshold)
        .ok()
        .filter(|threshold| (1..=points.len()).contains(threshold))
        .ok_or(CoreError::ShareThreshold {
            threshold,
            points: points.len(),
        })?
        - 1;
    let points = check_points(points.iter().copied())?;
    let constants = Zeroizing::new(limbs_of(secret));
    let mut words = RandomWords::new(coefficient_seed);
    let mut coefficients = Zeroizing::new(vec![[0; LIMBS]; degree]);
    for limb in coefficients.iter_mut().flatten() {
        *limb = uniform_element(&mut words)?;
    }
    Ok(points
        .into_iter()
        .map(|point| {
            let mut value = Zeroizing::new([0; LIMBS]);
            for coefficient in coefficients.iter().rev() {
                horner_step(&mut value, point, coefficient);
            }
            horner_step(&mut value, point, &constants);
            encode(&value)
        })
        .collect())
}

/// Combines shares to the secret. Checks all of them and uses the first `threshold`.
///
/// # Errors
/// [`CoreError::ShareThreshold`], [`CoreError::TooFewShares`], [`CoreError::SharePoint`],
/// [`CoreError::ShareDuplicate`], [`CoreError::ShareLength`], [`CoreError::ShareRange`] or
/// [`CoreError::ShareSecret`].
pub fn combine_shares(shares: &[Share<'_>], threshold: i64) -> Result<Seed, CoreError> {
    let needed = usize::try_from(threshold)
        .ok()
        .filter(|needed| *needed > 0)
        .ok_or(CoreError::ShareThreshold {
            threshold,
            points: shares.len(),
        })?;
    if shares.len() < needed {
        return Err(CoreError::TooFewShares {
            threshold,
            found: shares.len(),
        });
    }
    let mut points = check_points(shares.iter().map(|share| share.point))?;
    let mut values = Zeroizing::new(vec![[0; LIMBS]; shares.len()]);
    for (value, share) in values.iter_mut().zip(shares) {
        *value = decode(share)?;
    }
    points.truncate(needed);
    let mut secret = Zeroizing::new([0; LIMBS]);
    for (index, (point, value)) in points.iter().zip(values.iter()).enumerate() {
        let weight = weight_at_zero(&points, index, *point);
        for (sum, limb) in secret.iter_mut().zip(value) {
            *sum = add(*sum, multiply(weight, *limb));
        }
    }
    seed_of(&secret)
}

fn check_points(points: impl Iterator<Item = i64>) -> Result<Vec<u64>, CoreError> {
    let mut seen = std::collections::HashSet::new();
    points
        .map(|point| {
            if !seen.insert(point) {
                return Err(CoreError::ShareDuplicate { point });
            }
            u64::try_from(point)
                .ok()
                .filter(|_| (1..=MAX_POINT).contains(&point))
                .ok_or(CoreError::SharePoint { point })
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

fn horner_step(value: &mut Limbs, point: u64, coefficient: &Limbs) {
    for (limb, addend) in value.iter_mut().zip(coefficient) {
        *limb = add(multiply(*limb, point), *addend);
    }
}

/// Lagrange's weight of one point for the value at zero. Works on public points only.
fn weight_at_zero(points: &[u64], own_index: usize, own_point: u64) -> u64 {
    let (mut numerator, mut denominator) = (1, 1);
    for (index, point) in points.iter().enumerate() {
        if index != own_index {
            numerator = multiply(numerator, *point);
            denominator = multiply(denominator, subtract(*point, own_point));
        }
    }
    multiply(numerator, invert(denominator))
}

fn encode(value: &Limbs) -> Zeroizing<[u8; SHARE_BYTES]> {
    let mut bytes = Zeroizing::new([0; SHARE_BYTES]);
    for (target, limb) in bytes.chunks_exact_mut(8).zip(value) {
        target.copy_from_slice(&limb.to_le_bytes());
    }
    bytes
}

fn decode(share: &Share<'_>) -> Result<Limbs, CoreError> {
    if share.bytes.len() != SHARE_BYTES {
        return Err(CoreError::ShareLength {
            found: share.bytes.len(),
        });
    }
    let mut value = [0; LIMBS];
    let mut is_canonical = true;
    for (limb, source) in value.iter_mut().zip(share.bytes.chunks_exact(8)) {
        let mut word = [0; 8];
        word.copy_from_slice(source);
        *limb = u64::from_le_bytes(word);
        is_canonical &= *limb < MODULUS;
    }
    if is_canonical {
        return Ok(value);
    }
    value.zeroize();
    Err(CoreError::ShareRange { point: share.point })
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

fn seed_of(limbs: &Limbs) -> Result<Seed, CoreError> {
    let [l0, l1, l2, l3, l4] = *limbs;
    // All limbs are judged at once, so that which of them was wrong does not show.
    if (l0 | l1 | l2 | l3) >> LIMB_BITS | l4 >> TOP_LIMB_BITS != 0 {
        return Err(CoreError::ShareSecret);
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
    Ok(seed)
}
