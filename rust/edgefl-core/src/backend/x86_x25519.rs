//! X25519 of one secret key with four public keys at a time, in 256-bit registers (`x86_64`, AVX2).
//!
//! Source: RFC 7748, section 5 (the ladder, and the order of its steps); radix 2^25.5 as in Bernstein
//! 2006, "Curve25519: new Diffie-Hellman speed records", section 4. The four ladders have the scalar
//! in common, so that they swap together. Time and memory accesses do not depend on the scalar nor
//! on the public keys. Cost: some 2600 multiplications and squarings for all four.
//!
//! A field element is ten limbs, limb i of weight 2^ceil(25.5 i); register i holds limb i of the four
//! elements in its 64-bit lanes. Limbs are *tight* after a multiplication: at most 2^26 (even i) or
//! 2^25 (odd i), and 2^13 over it. They are *loose* after one addition or subtraction of tight ones:
//! at most three times as large. Multiplication takes loose limbs: 19 times an even one is
//! 57 * 2^26 < 2^32, and the sum of a column is below 1121 * 2^52 < 2^63.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_mul_epu32, _mm256_set1_epi64x,
    _mm256_setr_epi64x, _mm256_setzero_si256, _mm256_slli_epi64, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_sub_epi64, _mm256_xor_si256,
};

use zeroize::{Zeroize, Zeroizing};

use crate::agreement::LADDER_LANES;

const LIMBS: usize = 10;
/// (486662 - 2) / 4, of the curve's equation.
const A24: i64 = 121_665;
/// Twice the modulus, limb by limb: added before a subtraction, it keeps every limb positive.
const TWICE_MODULUS: [i64; LIMBS] = {
    let mut limbs = [(1 << 27) - 2; LIMBS];
    let mut index = 1;
    while index < LIMBS {
        limbs[index] = (1 << 26) - 2;
        index += 2;
    }
    limbs[0] = (1 << 27) - 38;
    limbs
};

type Quad = [__m256i; LIMBS];
type Bytes = [u8; 32];

/// Says whether this processor has the instructions.
pub(crate) fn is_available() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// Returns the X25519 results of a scalar, clamped here, or nothing where [`is_available`] is false.
pub(crate) fn shared_secrets(
    scalar: &Bytes,
    public_keys: &[Bytes; LADDER_LANES],
) -> Option<Zeroizing<[Bytes; LADDER_LANES]>> {
    if !is_available() {
        return None;
    }
    // SAFETY: the processor has AVX2, as was just seen.
    Some(unsafe { ladder(scalar, public_keys) })
}

/// The working points of the ladder: x / z each, wiped when dropped.
struct Points {
    x2: Quad,
    z2: Quad,
    x3: Quad,
    z3: Quad,
}

impl Drop for Points {
    fn drop(&mut self) {
        for quad in [&mut self.x2, &mut self.z2, &mut self.x3, &mut self.z3] {
            quad.zeroize();
        }
    }
}

#[target_feature(enable = "avx2")]
unsafe fn ladder(
    scalar: &Bytes,
    public_keys: &[Bytes; LADDER_LANES],
) -> Zeroizing<[Bytes; LADDER_LANES]> {
    let mut scalar = Zeroizing::new(*scalar);
    scalar[0] &= 0xf8;
    scalar[31] = scalar[31] & 0x7f | 0x40;
    let mut zero = [_mm256_setzero_si256(); LIMBS];
    let x1 = load(public_keys);
    let mut points = Points {
        x2: zero,
        z2: zero,
        x3: x1,
        z3: zero,
    };
    points.x2[0] = _mm256_set1_epi64x(1);
    points.z3[0] = _mm256_set1_epi64x(1);
    let mut previous = 0;
    for position in (0..255).rev() {
        let bit = scalar[position / 8] >> (position % 8) & 1;
        swap(&mut points, previous ^ bit);
        step(&mut points, &x1);
        previous = bit;
    }
    swap(&mut points, previous);
    zero = multiply(&points.x2, &invert(&points.z2));
    let results = store(&zero);
    zero.zeroize();
    results
}

/// Exchanges the two points where `bit` is one.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn swap(points: &mut Points, bit: u8) {
    let mask = _mm256_set1_epi64x(-i64::from(bit));
    let Points { x2, z2, x3, z3 } = points;
    for (left, right) in x2.iter_mut().zip(x3).chain(z2.iter_mut().zip(z3)) {
        let change = _mm256_and_si256(_mm256_xor_si256(*left, *right), mask);
        *left = _mm256_xor_si256(*left, change);
        *right = _mm256_xor_si256(*right, change);
    }
}

/// Doubles the first point and adds it to the second; the names are those of the RFC.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn step(points: &mut Points, x1: &Quad) {
    let a = add(&points.x2, &points.z2);
    let b = subtract(&points.x2, &points.z2);
    let c = add(&points.x3, &points.z3);
    let d = subtract(&points.x3, &points.z3);
    let (da, cb) = (multiply(&d, &a), multiply(&c, &b));
    let (aa, bb) = (square(&a), square(&b));
    let e = subtract(&aa, &bb);
    points.x3 = square(&add(&da, &cb));
    points.z3 = multiply(x1, &square(&subtract(&da, &cb)));
    points.x2 = multiply(&aa, &bb);
    points.z2 = multiply(&e, &multiply_small_add(&e, &aa));
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add(f: &Quad, g: &Quad) -> Quad {
    let mut sum = *f;
    for (limb, other) in sum.iter_mut().zip(g) {
        *limb = _mm256_add_epi64(*limb, *other);
    }
    sum
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn subtract(f: &Quad, g: &Quad) -> Quad {
    let mut difference = *f;
    for ((limb, other), spare) in difference.iter_mut().zip(g).zip(TWICE_MODULUS) {
        let raised = _mm256_add_epi64(*limb, _mm256_set1_epi64x(spare));
        *limb = _mm256_sub_epi64(raised, *other);
    }
    difference
}

/// Returns A24 * f + g.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn multiply_small_add(f: &Quad, g: &Quad) -> Quad {
    let factor = _mm256_set1_epi64x(A24);
    let mut h = *g;
    for (limb, other) in h.iter_mut().zip(f) {
        *limb = _mm256_add_epi64(*limb, _mm256_mul_epu32(*other, factor));
    }
    carry(h)
}

/// Multiplies limb by limb. Column k sums `f_i g_j` over i + j = k, and 19 times it over
/// i + j = k + 10; where i and j are odd the weights ask for twice the product.
#[target_feature(enable = "avx2")]
unsafe fn multiply(f: &Quad, g: &Quad) -> Quad {
    let wrapped = wrapping_limbs(g);
    let mut h = [_mm256_setzero_si256(); LIMBS];
    for i in (0..LIMBS).step_by(2) {
        let (even, odd) = (f[i], f[i + 1]);
        let doubled_odd = _mm256_add_epi64(odd, odd);
        for (k, column) in h.iter_mut().enumerate() {
            let product = _mm256_mul_epu32(even, wrapped[LIMBS + k - i]);
            *column = _mm256_add_epi64(*column, product);
        }
        for (k, column) in h.iter_mut().enumerate() {
            let left = if k % 2 == 0 { doubled_odd } else { odd };
            let product = _mm256_mul_epu32(left, wrapped[LIMBS + k - i - 1]);
            *column = _mm256_add_epi64(*column, product);
        }
    }
    carry(h)
}

/// Multiplies an element by itself: products of different limbs are made once and counted twice.
#[target_feature(enable = "avx2")]
unsafe fn square(f: &Quad) -> Quad {
    let wrapped = wrapping_limbs(f);
    let twice = add(f, f);
    let fourfold = add(&twice, &twice);
    let multiples = [f, &twice, &fourfold];
    let columns = [
        square_column::<0>(multiples, &wrapped),
        square_column::<1>(multiples, &wrapped),
        square_column::<2>(multiples, &wrapped),
        square_column::<3>(multiples, &wrapped),
        square_column::<4>(multiples, &wrapped),
        square_column::<5>(multiples, &wrapped),
        square_column::<6>(multiples, &wrapped),
        square_column::<7>(multiples, &wrapped),
        square_column::<8>(multiples, &wrapped),
        square_column::<9>(multiples, &wrapped),
    ];
    carry(columns)
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn square_column<const K: usize>(
    multiples: [&Quad; 3],
    wrapped: &[__m256i; 2 * LIMBS],
) -> __m256i {
    let mut column = _mm256_setzero_si256();
    for i in 0..LIMBS {
        let j = (LIMBS + K - i) % LIMBS;
        if i <= j {
            let doublings = usize::from(i < j) + i % 2 * (j % 2);
            let product = _mm256_mul_epu32(multiples[doublings][i], wrapped[LIMBS + K - i]);
            column = _mm256_add_epi64(column, product);
        }
    }
    column
}

/// Returns 19 times each limb, and behind them the limbs: what index 10 + k - i finds for column k.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn wrapping_limbs(g: &Quad) -> [__m256i; 2 * LIMBS] {
    let nineteen = _mm256_set1_epi64x(19);
    let mut wrapped = [_mm256_setzero_si256(); 2 * LIMBS];
    for (index, limb) in g.iter().enumerate() {
        wrapped[index] = _mm256_mul_epu32(*limb, nineteen);
        wrapped[LIMBS + index] = *limb;
    }
    wrapped
}

/// Makes limbs below 2^63 tight: two chains at once, and 19 times what leaves the last limb.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn carry(mut h: Quad) -> Quad {
    for index in [0, 4, 1, 5, 2, 6, 3, 7, 4, 8] {
        let carried = split(&mut h[index], index);
        h[index + 1] = _mm256_add_epi64(h[index + 1], carried);
    }
    let carried = split(&mut h[9], 9);
    // 19 = 16 + 2 + 1; the carry has too many bits for the multiplication.
    let threefold = _mm256_add_epi64(carried, _mm256_slli_epi64::<1>(carried));
    let folded = _mm256_add_epi64(threefold, _mm256_slli_epi64::<4>(carried));
    h[0] = _mm256_add_epi64(h[0], folded);
    let carried = split(&mut h[0], 0);
    h[1] = _mm256_add_epi64(h[1], carried);
    h
}

/// Leaves the bits of a limb and returns those above.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn split(limb: &mut __m256i, index: usize) -> __m256i {
    if index % 2 == 0 {
        let above = _mm256_srli_epi64::<26>(*limb);
        *limb = _mm256_and_si256(*limb, _mm256_set1_epi64x((1 << 26) - 1));
        above
    } else {
        let above = _mm256_srli_epi64::<25>(*limb);
        *limb = _mm256_and_si256(*limb, _mm256_set1_epi64x((1 << 25) - 1));
        above
    }
}

/// Returns z^(p - 2), by the usual chain for 2^255 - 21: 254 squarings and 11 multiplications.
#[target_feature(enable = "avx2")]
unsafe fn invert(z: &Quad) -> Quad {
    let z2 = square(z);
    let z9 = multiply(&square_times(&z2, 2), z);
    let z11 = multiply(&z9, &z2);
    // From here on, pow_n is z^(2^n - 1).
    let pow_5 = multiply(&square(&z11), &z9);
    let pow_10 = multiply(&square_times(&pow_5, 5), &pow_5);
    let pow_20 = multiply(&square_times(&pow_10, 10), &pow_10);
    let pow_40 = multiply(&square_times(&pow_20, 20), &pow_20);
    let pow_50 = multiply(&square_times(&pow_40, 10), &pow_10);
    let pow_100 = multiply(&square_times(&pow_50, 50), &pow_50);
    let pow_200 = multiply(&square_times(&pow_100, 100), &pow_100);
    let pow_250 = multiply(&square_times(&pow_200, 50), &pow_50);
    multiply(&square_times(&pow_250, 5), &z11)
}

#[target_feature(enable = "avx2")]
unsafe fn square_times(f: &Quad, times: usize) -> Quad {
    let mut result = *f;
    for _ in 0..times {
        result = square(&result);
    }
    result
}

#[target_feature(enable = "avx2")]
unsafe fn load(elements: &[Bytes; LADDER_LANES]) -> Quad {
    let [a, b, c, d] = [0, 1, 2, 3].map(|lane| limbs_of(&elements[lane]));
    let mut quad = [_mm256_setzero_si256(); LIMBS];
    for (index, limb) in quad.iter_mut().enumerate() {
        *limb = _mm256_setr_epi64x(a[index], b[index], c[index], d[index]);
    }
    quad
}

#[target_feature(enable = "avx2")]
unsafe fn store(quad: &Quad) -> Zeroizing<[Bytes; LADDER_LANES]> {
    let mut limbs = Zeroizing::new([[0_u64; LIMBS]; LADDER_LANES]);
    for (index, limb) in quad.iter().enumerate() {
        let mut lanes = Zeroizing::new([0_u64; LADDER_LANES]);
        // SAFETY: the store is unaligned and the target has 32 bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), *limb) };
        for (element, lane) in limbs.iter_mut().zip(lanes.iter()) {
            element[index] = *lane;
        }
    }
    let mut bytes = Zeroizing::new([[0; 32]; LADDER_LANES]);
    for (target, element) in bytes.iter_mut().zip(limbs.iter_mut()) {
        encode(element, target);
    }
    bytes
}

/// Where limb `index` starts, and how many bits it has.
fn place_of(index: usize) -> (usize, usize) {
    ((51 * index).div_ceil(2), 26 - index % 2)
}

/// Cuts 255 bits into limbs; the highest bit is ignored, as the RFC asks.
fn limbs_of(bytes: &Bytes) -> [i64; LIMBS] {
    let mut limbs = [0; LIMBS];
    for (index, limb) in limbs.iter_mut().enumerate() {
        let (start, bits) = place_of(index);
        for (offset, byte) in bytes[start / 8..].iter().take(5).enumerate() {
            *limb |= i64::from(*byte) << (8 * offset);
        }
        *limb = *limb >> (start % 8) & ((1 << bits) - 1);
    }
    limbs
}

/// Writes tight limbs as the one number below the modulus that they stand for.
fn encode(limbs: &mut [u64; LIMBS], bytes: &mut Bytes) {
    // The value is below 2^256. Adding 19 carries out of bit 255 as often as the modulus fits.
    let mut quotient = 19;
    for (index, limb) in limbs.iter().enumerate() {
        quotient = (limb + quotient) >> place_of(index).1;
    }
    let mut carried = 19 * quotient;
    for (index, limb) in limbs.iter_mut().enumerate() {
        let (start, bits) = place_of(index);
        carried += *limb;
        let word = (carried & ((1 << bits) - 1)) << (start % 8);
        carried >>= bits;
        for (target, byte) in bytes[start / 8..]
            .iter_mut()
            .zip(word.to_le_bytes())
            .take(5)
        {
            *target |= byte;
        }
    }
}
