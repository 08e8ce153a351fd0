//! Arithmetic modulo p = 2^61 - 1, in constant time on every value.
//!
//! Elements are `u64` below p. No branch and no index depends on a value; multiplication is one
//! 64 x 64 product, which common processors do in constant time.

#![deny(clippy::indexing_slicing)]

/// The field's modulus, a Mersenne prime.
pub(crate) const MODULUS: u64 = (1 << 61) - 1;

/// Brings a number below 2p into the field.
fn reduce_once(value: u64) -> u64 {
    let difference = value.wrapping_sub(MODULUS);
    let borrow = difference >> 63;
    difference.wrapping_add(MODULUS & borrow.wrapping_neg())
}

/// Adds two elements.
pub(crate) fn add(a: u64, b: u64) -> u64 {
    reduce_once(a + b)
}

/// Subtracts two elements.
pub(crate) fn subtract(a: u64, b: u64) -> u64 {
    reduce_once(a + MODULUS - b)
}

/// Multiplies two elements; 2^61 = 1 modulo p folds the high half onto the low one.
#[allow(clippy::cast_possible_truncation)] // both halves are below 2^61
pub(crate) fn multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    reduce_once((product as u64 & MODULUS) + (product >> 61) as u64)
}

/// Inverts a non-zero element as a^(p - 2); zero gives zero. The exponent is public.
pub(crate) fn invert(a: u64) -> u64 {
    let exponent = MODULUS - 2;
    (0..61).rev().fold(1, |power, bit| {
        let square = multiply(power, power);
        if exponent >> bit & 1 == 1 {
            multiply(square, a)
        } else {
            square
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{add, invert, multiply, subtract, MODULUS};

    const SAMPLES: [u64; 7] = [
        0,
        1,
        2,
        (1 << 52) - 1,
        0x0123_4567_89ab_cdef,
        MODULUS - 2,
        MODULUS - 1,
    ];

    #[test]
    fn agrees_with_wide_integer_arithmetic() {
        let modulus = u128::from(MODULUS);
        for a in SAMPLES {
            for b in SAMPLES {
                let (wide_a, wide_b) = (u128::from(a), u128::from(b));
                assert_eq!(u128::from(add(a, b)), (wide_a + wide_b) % modulus);
                assert_eq!(
                    u128::from(subtract(a, b)),
                    (wide_a + modulus - wide_b) % modulus
                );
                assert_eq!(u128::from(multiply(a, b)), wide_a * wide_b % modulus);
            }
        }
    }

    #[test]
    fn inverse_times_element_is_one() {
        for a in SAMPLES.into_iter().filter(|a| *a != 0) {
            assert_eq!(multiply(a, invert(a)), 1, "{a}");
        }
        assert_eq!(invert(0), 0);
    }
}
