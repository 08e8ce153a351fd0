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

/// Multiplies by a factor of at most 48 bits and adds an element, for chains of such steps.
///
/// `value` may be any number below 2^63 and so is the result, which [`reduce`] brings into the
/// field. Below 2^63 the product has 111 bits, its high part 50, and both parts and the addend
/// together stay below 2^62 + 2^50: nothing wraps.
#[allow(clippy::cast_possible_truncation)] // the low part is masked, the high one has 50 bits
#[inline]
pub(crate) fn lazy_multiply_add(value: u64, factor: u64, addend: u64) -> u64 {
    let product = u128::from(value) * u128::from(factor);
    (product as u64 & MODULUS)
        .wrapping_add((product >> 61) as u64)
        .wrapping_add(addend)
}

/// Brings any number below 2^63 into the field.
pub(crate) fn reduce(value: u64) -> u64 {
    reduce_once((value & MODULUS) + (value >> 61))
}

/// Replaces each element, none of which is zero, by its inverse. Cost: one inversion and three
/// multiplications per element. Source: Montgomery 1987, section 10.3.1.
pub(crate) fn invert_all(elements: &mut [u64]) {
    let mut product = 1;
    let before: Vec<u64> = elements
        .iter()
        .map(|element| {
            let before = product;
            product = multiply(product, *element);
            before
        })
        .collect();
    let mut inverse = invert(product);
    for (element, before) in elements.iter_mut().zip(before).rev() {
        let own = multiply(inverse, before);
        inverse = multiply(inverse, *element);
        *element = own;
    }
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
    use super::{add, invert, invert_all, lazy_multiply_add, multiply, reduce, subtract, MODULUS};

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

    #[test]
    fn lazy_steps_agree_with_wide_integer_arithmetic_at_their_limits() {
        let modulus = u128::from(MODULUS);
        for value in SAMPLES
            .into_iter()
            .chain([MODULUS, (1 << 62) + (1 << 50), (1 << 63) - 1])
        {
            assert_eq!(u128::from(reduce(value)), u128::from(value) % modulus);
            for factor in [0, 1, 1 << 16, (1 << 48) - 1] {
                for addend in SAMPLES {
                    let found = lazy_multiply_add(value, factor, addend);
                    let exact = u128::from(value) * u128::from(factor) + u128::from(addend);
                    assert!(found < 1 << 63);
                    assert_eq!(u128::from(reduce(found)), exact % modulus);
                }
            }
        }
    }

    #[test]
    fn inverting_all_is_inverting_each() {
        let mut elements: Vec<u64> = SAMPLES.into_iter().filter(|a| *a != 0).collect();
        let expected: Vec<u64> = elements.iter().map(|a| invert(*a)).collect();
        invert_all(&mut elements);
        assert_eq!(elements, expected);
        invert_all(&mut []);
    }
}
