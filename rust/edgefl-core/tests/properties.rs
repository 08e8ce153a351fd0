//! Properties that hold for every input, by proptest.

mod common;

use edgefl_core::{
    add_in_ring, apply_masks, check_coordinates, combine_shares, open_sealed, pack, packed_bytes,
    quantize, reduce_to_ring, seal, split_secret, unpack, verify, AgreementKey, CoreError, Prg,
    QuantizeSettings, RingBits, Seed, Share, SigningKey,
};
use proptest::prelude::*;

use common::masks;

fn seed() -> impl Strategy<Value = Seed> {
    any::<[u8; 32]>().prop_map(|bytes| Seed::from_bytes(&bytes).expect("32 bytes"))
}

fn ring() -> impl Strategy<Value = RingBits> {
    (8_i64..=32).prop_map(|bits| RingBits::new(bits).expect("8 to 32"))
}

fn prg() -> impl Strategy<Value = Prg> {
    prop::sample::select(Prg::ALL.as_slice())
}

fn reduced(values: &[u32], ring: RingBits) -> Vec<u32> {
    values.iter().map(|value| value & ring.mask()).collect()
}

/// A threshold, at least as many different points, and which of them answer, in their order.
fn sharing() -> impl Strategy<Value = (usize, Vec<i64>, Vec<usize>)> {
    proptest::collection::hash_set(1_i64..=65_536, 1..12).prop_flat_map(|points| {
        let points: Vec<i64> = points.into_iter().collect();
        let order = Just((0..points.len()).collect::<Vec<usize>>()).prop_shuffle();
        (1..=points.len(), Just(points), order)
    })
}

proptest! {
    #[test]
    fn packing_round_trips(values in proptest::collection::vec(any::<u32>(), 0..200), ring in ring()) {
        let values = reduced(&values, ring);
        let packed = pack(&values, ring).expect("reduced");
        prop_assert_eq!(Some(packed.len()), packed_bytes(values.len(), ring));
        let mut unpacked = vec![u32::MAX; values.len()];
        unpack(&packed, ring, &mut unpacked).expect("our own bytes");
        prop_assert_eq!(unpacked, values);
    }

    #[test]
    fn unpacking_accepts_one_form_only(
        packed in proptest::collection::vec(any::<u8>(), 0..60), ring in ring(), count in 0_usize..40,
    ) {
        let mut values = vec![0; count];
        match unpack(&packed, ring, &mut values) {
            Ok(()) => prop_assert_eq!(pack(&values, ring).expect("masked"), packed),
            Err(CoreError::PackedLength { expected, found }) => prop_assert_ne!(expected, found),
            Err(CoreError::PackedPadding) => prop_assert_ne!(count * ring.bits() as usize % 8, 0),
            Err(other) => prop_assert!(false, "unexpected {other}"),
        }
    }

    #[test]
    fn packing_refuses_what_is_not_reduced(bits in 8_i64..32, excess in any::<u32>(), index in 0_usize..5) {
        let ring = RingBits::new(bits).expect("8 to 32");
        let mut values = vec![0; 5];
        values[index] = excess | (ring.mask() + 1);
        let refused = CoreError::RingValue { index, ring_bits: ring.bits() };
        prop_assert_eq!(pack(&values, ring), Err(refused));
    }

    #[test]
    fn masks_cancel(
        start in proptest::collection::vec(any::<u32>(), 0..5000),
        seeds in proptest::collection::vec(seed(), 1..4),
        ring in ring(), threads in 1_usize..4, prg in prg(),
    ) {
        let start = reduced(&start, ring);
        let mut values = start.clone();
        apply_masks(&mut values, ring, &masks(prg, &seeds, &[]), threads, None).expect("valid");
        prop_assert!(start.len() < 16 || values != start);
        prop_assert!(values.iter().all(|value| *value <= ring.mask()));
        apply_masks(&mut values, ring, &masks(prg, &[], &seeds), 1, None).expect("valid");
        prop_assert_eq!(values, start);
    }

    #[test]
    fn any_threshold_of_shares_gives_the_secret(
        (threshold, points, order) in sharing(), secret in seed(), coefficients in seed(),
    ) {
        let threshold_i64 = i64::try_from(threshold).expect("small");
        let shares = split_secret(&secret, threshold_i64, &points, &coefficients).expect("valid");
        let held: Vec<Share<'_>> = order[..threshold]
            .iter()
            .map(|index| Share { point: points[*index], bytes: shares[*index].as_slice() })
            .collect();
        let found = combine_shares(&held, threshold_i64).expect("valid");
        prop_assert_eq!(found.export_bytes(), secret.export_bytes());
        let refused = combine_shares(&held[1..], threshold_i64).expect_err("one too few");
        prop_assert_eq!(refused, CoreError::TooFewShares { threshold: threshold_i64, found: threshold - 1 });
    }

    /// What t - 1 holders see fits every secret: shares of one secret become shares of another when
    /// a polynomial of degree t - 1 is added that is zero at their points. Checked in the field.
    #[test]
    fn fewer_shares_fit_another_secret(
        (threshold, points, _) in sharing(), secret in seed(), other in seed(), coefficients in seed(),
    ) {
        prop_assume!(threshold >= 2);
        let threshold_i64 = i64::try_from(threshold).expect("small");
        let shares = split_secret(&secret, threshold_i64, &points, &coefficients).expect("valid");
        let (seen, last) = (&points[..threshold - 1], points[threshold - 1]);
        let forged = forged_share(&secret, &other, seen, last, shares[threshold - 1].as_slice());
        let mut held: Vec<Share<'_>> = seen
            .iter()
            .zip(&shares)
            .map(|(point, bytes)| Share { point: *point, bytes: bytes.as_slice() })
            .collect();
        held.push(Share { point: last, bytes: &forged });
        let found = combine_shares(&held, threshold_i64).expect("valid");
        prop_assert_eq!(found.export_bytes(), other.export_bytes());
    }

    #[test]
    fn combining_never_panics(
        shares in proptest::collection::vec((any::<i64>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..5),
        threshold in any::<i64>(),
    ) {
        let held: Vec<Share<'_>> = shares
            .iter()
            .map(|(point, bytes)| Share { point: *point, bytes })
            .collect();
        if let Err(error) = combine_shares(&held, threshold) {
            prop_assert!(error.report().code.starts_with("E-SHARE-"));
        }
    }

    #[test]
    fn rounding_keeps_the_bound_and_stays_close(
        update in proptest::collection::vec(-3.0_f32..3.0, 1..50),
        scale in 0.1_f64..1000.0, slack in 0.0_f64..2.0, rounding in seed(),
    ) {
        let scaled: Vec<f64> = update.iter().map(|value| scale * f64::from(*value)).collect();
        let bound = scaled.iter().map(|value| value * value).sum::<f64>() * (1.0 + slack);
        let settings = QuantizeSettings { scale, l2_squared_bound: bound, max_attempts: 4 };
        let mut out = vec![0; update.len()];
        let attempts = quantize(&update, &mut out, settings, &rounding).expect("inside the bound");
        prop_assert!((1..=5).contains(&attempts));
        #[allow(clippy::cast_precision_loss)] // below 2^52
        let rounded: Vec<f64> = out.iter().map(|value| *value as f64).collect();
        prop_assert!(rounded.iter().map(|value| value * value).sum::<f64>() <= bound);
        for (value, exact) in rounded.iter().zip(&scaled) {
            prop_assert!((value - exact).abs() < 1.0, "{value} for {exact}");
            prop_assert!(attempts < 5 || value.abs() <= exact.abs());
        }
    }

    #[test]
    fn reducing_agrees_with_the_remainder(values in proptest::collection::vec(any::<i64>(), 0..20), ring in ring()) {
        let mut out = vec![0; values.len()];
        reduce_to_ring(&values, &mut out, ring).expect("same length");
        for (value, found) in values.iter().zip(out) {
            prop_assert_eq!(i64::from(found), value.rem_euclid(1 << ring.bits()));
        }
    }

    /// The check of a sum is the sum of the checks, and one changed coordinate shows in every row.
    #[test]
    fn checks_are_linear_and_notice_a_change(
        pairs in proptest::collection::vec((any::<u32>(), any::<u32>()), 1..1100),
        ring in ring(), session_id in any::<[u8; 32]>(), change in any::<u32>(), place in any::<prop::sample::Index>(),
    ) {
        let (a, b): (Vec<u32>, Vec<u32>) = pairs.into_iter().unzip();
        let mut sum = reduced(&a, ring);
        add_in_ring(&mut sum, &b, ring).expect("same length");
        let mut checks = check_coordinates(&a, ring, &session_id).expect("short");
        add_in_ring(&mut checks, &check_coordinates(&b, ring, &session_id).expect("short"), ring).expect("same length");
        let found = check_coordinates(&sum, ring, &session_id).expect("short");
        prop_assert_eq!(found, checks);
        prop_assume!(change & ring.mask() != 0);
        let index = place.index(sum.len());
        sum[index] = sum[index].wrapping_add(change);
        let changed = check_coordinates(&sum, ring, &session_id).expect("short");
        prop_assert!(changed.iter().zip(checks).all(|(found, expected)| *found != expected));
    }

    #[test]
    fn sealed_messages_open_only_whole(
        key in seed(), plaintext in proptest::collection::vec(any::<u8>(), 0..100),
        header in proptest::collection::vec(any::<u8>(), 0..20), place in any::<prop::sample::Index>(), bit in 0_u32..8,
    ) {
        let mut sealed = seal(&key, &plaintext, &header, None).expect("short");
        prop_assert_eq!(open_sealed(&key, &sealed, &header), Ok(plaintext));
        let index = place.index(sealed.len());
        prop_assert_eq!(open_sealed(&key, &sealed[..index], &header), Err(CoreError::Sealed));
        sealed[index] ^= 1 << bit;
        prop_assert_eq!(open_sealed(&key, &sealed, &header), Err(CoreError::Sealed));
    }

    #[test]
    fn both_sides_agree(a in seed(), b in seed(), salt in any::<[u8; 4]>()) {
        let (a, b) = (AgreementKey::from_seed(&a), AgreementKey::from_seed(&b));
        let at_a = a.agree(&b.public_key(), &salt, b"info").expect("valid");
        let at_b = b.agree(&a.public_key(), &salt, b"info").expect("valid");
        prop_assert_eq!(at_a.export_bytes(), at_b.export_bytes());
        let elsewhere = a.agree(&b.public_key(), &salt, b"other").expect("valid");
        prop_assert_ne!(at_a.export_bytes(), elsewhere.export_bytes());
    }

    #[test]
    fn signatures_bind_key_and_message(key in seed(), message in proptest::collection::vec(any::<u8>(), 0..50), bit in 0_usize..512) {
        let key = SigningKey::from_seed(&key);
        let mut signature = key.sign(&message);
        prop_assert!(verify(&key.public_key(), &message, &signature));
        prop_assert!(!verify(&key.public_key(), &[&message[..], b"x"].concat(), &signature));
        signature[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!verify(&key.public_key(), &message, &signature));
    }
}

/// Shifts the share at `last` by what turns the secret into the other one: the difference of the
/// limbs at zero, times the product of (last - point) / (0 - point) over the seen points.
fn forged_share(secret: &Seed, other: &Seed, seen: &[i64], last: i64, share: &[u8]) -> Vec<u8> {
    const P: i128 = (1 << 61) - 1;
    let power = |base: i128, mut exponent: i128| {
        let (mut result, mut square) = (1, base);
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = result * square % P;
            }
            square = square * square % P;
            exponent >>= 1;
        }
        result
    };
    let factor = seen.iter().fold(1, |product: i128, point| {
        let point = i128::from(*point);
        let quotient = (i128::from(last) - point).rem_euclid(P) * power(P - point, P - 2) % P;
        product * quotient % P
    });
    limbs(secret)
        .into_iter()
        .zip(limbs(other))
        .zip(share.chunks_exact(8))
        .flat_map(|((from, to), bytes)| {
            let value = i128::from(u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
            let shifted = (value + (to - from).rem_euclid(P) * factor) % P;
            u64::try_from(shifted).expect("below p").to_le_bytes()
        })
        .collect()
}

/// The secret's 52-bit limbs, read bit by bit: slow and plain, unlike the code under test.
fn limbs(secret: &Seed) -> Vec<i128> {
    let bit = |index: usize| secret.export_bytes()[index / 8] >> (index % 8) & 1;
    (0..5)
        .map(|limb| {
            (52 * limb..(52 * limb + 52).min(256))
                .rev()
                .fold(0, |value, index| value << 1 | i128::from(bit(index)))
        })
        .collect()
}
