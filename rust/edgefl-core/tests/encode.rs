//! The fused device path against a slow, plain composition of its steps, and the sum at the gateway.

use edgefl_core::{
    add_in_ring, add_skellam_noise, apply_masks, check_coordinates, clip_factor, decode_sum,
    encode_and_mask, pack, reduce_to_ring, round_inside_bound, unpack, update_norm, weight_slot,
    CancelFlag, CoreError, EncodeSecrets, EncodeSettings, Mask, NoNoise, Prg, QuantizeSettings,
    RingBits, RingSum, Rotation, Seed, Sign, SkellamNoise, CHECK_COORDINATES,
};
use proptest::prelude::*;

const SESSION_ID: [u8; 32] = [3; 32];
const SIGN_SEED: [u8; 32] = [9; 32];

/// One call of the device path in plain numbers, from which settings are made anew for each use.
#[derive(Clone, Debug)]
struct Case {
    update: Vec<f32>,
    clip_norm: f64,
    scale: f64,
    /// How far the bound on the squared norm is above the scaled clip norm's square.
    slack: f64,
    variance: f64,
    bits: i64,
    block: i64,
    weight: Option<u32>,
    prg: Prg,
    threads: usize,
}

fn seed(byte: u8) -> Seed {
    Seed::from_bytes(&[byte; 32]).expect("32 bytes")
}

impl Case {
    fn ring(&self) -> RingBits {
        RingBits::new(self.bits).expect("8 to 32")
    }

    fn rotation(&self) -> Option<Rotation> {
        (self.block > 0).then(|| Rotation::new(self.block, &SIGN_SEED).expect("a power of two"))
    }

    fn quantize(&self) -> QuantizeSettings {
        QuantizeSettings {
            scale: self.scale,
            l2_squared_bound: (self.scale * self.clip_norm).powi(2) + self.slack,
            max_attempts: 3,
        }
    }

    fn settings(&self) -> EncodeSettings<'static> {
        EncodeSettings {
            clip_norm: self.clip_norm,
            quantize: self.quantize(),
            ring: self.ring(),
            rotation: self.rotation(),
            weight: self.weight,
            session_id: &SESSION_ID,
            threads: self.threads,
            cancel: None,
        }
    }

    /// The tested path.
    fn fused(&self, masks: &[Mask<'_>]) -> Result<Vec<u8>, CoreError> {
        let settings = self.settings();
        let size = settings.packed_bytes(self.update.len()).expect("small");
        let mut packed = vec![0xee; size];
        let (rounding_seed, noise_seed) = (seed(1), seed(2));
        let plain = EncodeSecrets {
            rounding_seed: &rounding_seed,
            rounding_prg: self.prg,
            noise: &NoNoise,
            masks,
        };
        if let Some(noise) = SkellamNoise::new(self.variance, &noise_seed)? {
            let noise = &noise;
            let noised = EncodeSecrets {
                rounding_seed: &rounding_seed,
                rounding_prg: self.prg,
                noise,
                masks,
            };
            encode_and_mask(&self.update, &settings, &noised, &mut packed)?;
        } else {
            encode_and_mask(&self.update, &settings, &plain, &mut packed)?;
        }
        Ok(packed)
    }

    /// Clipped, rotated and scaled, in whole vectors.
    fn scaled(&self) -> Vec<f64> {
        let norm = update_norm(&self.update).expect("finite");
        let factor = self.scale * clip_factor(norm, self.clip_norm).expect("positive");
        let mut values: Vec<f64> = self.update.iter().map(|value| f64::from(*value)).collect();
        if let Some(rotation) = self.rotation() {
            values.resize(rotation.padded(values.len()), 0.0);
            rotation.rotate(&mut values).expect("whole blocks");
        }
        values.iter().map(|value| value * factor).collect()
    }

    /// The same bytes, one plain step after the other.
    fn composed(&self, masks: &[Mask<'_>]) -> Result<Vec<u8>, CoreError> {
        let scaled = self.scaled();
        let mut integers = vec![0; scaled.len()];
        round_inside_bound(&scaled, &mut integers, self.quantize(), &seed(1), self.prg)?;
        for value in &mut integers {
            *value *= i64::from(self.weight.unwrap_or(1));
        }
        add_skellam_noise(&mut integers, self.variance, &seed(2))?;
        integers.extend(self.weight.map(i64::from));
        let mut values = vec![0; integers.len()];
        reduce_to_ring(&integers, &mut values, self.ring())?;
        values.extend(check_coordinates(&values, self.ring(), &SESSION_ID)?);
        mask_plainly(&mut values, self.bits, masks)?;
        pack(&values, self.ring())
    }
}

/// Masks in the lanes that the ring's width asks for.
#[allow(clippy::cast_possible_truncation)] // values of at most 16 bits
fn mask_plainly(values: &mut [u32], bits: i64, masks: &[Mask<'_>]) -> Result<(), CoreError> {
    let ring = RingBits::new(bits)?;
    if bits > 16 {
        return apply_masks(values, ring, masks, 1, None);
    }
    let mut narrow: Vec<u16> = values.iter().map(|value| *value as u16).collect();
    apply_masks(&mut narrow, ring, masks, 1, None)?;
    for (target, value) in values.iter_mut().zip(narrow) {
        *target = u32::from(value);
    }
    Ok(())
}

fn prg() -> impl Strategy<Value = Prg> {
    prop_oneof![Just(Prg::ChaCha20), Just(Prg::Aes128Ctr)]
}

fn update(longest: usize) -> impl Strategy<Value = Vec<f32>> {
    let value = prop_oneof![
        4 => -3.0_f32..3.0,
        1 => Just(0.0),
        1 => Just(-0.0),
        1 => Just(f32::MIN_POSITIVE / 8.0),
        1 => (-4_i16..4).prop_map(f32::from),
    ];
    prop_oneof![
        4 => proptest::collection::vec(value, 1..300),
        // Long ones are made of few numbers, for drawing each would take longer than the test.
        1 => (1..=longest, -3.0_f32..3.0, 1_u16..50).prop_map(|(length, step, period)| {
            (0..length)
                .map(|i| step * f32::from(u16::try_from(i % usize::from(period)).expect("small")))
                .collect()
        }),
    ]
}

prop_compose! {
    fn case()(
        update in update(13_000),
        clip_norm in 0.01_f64..100.0,
        scale in 0.5_f64..1e6,
        slack in prop_oneof![Just(0.0), 0.0_f64..50.0, Just(1e30)],
        variance in prop_oneof![3 => Just(0.0), 1 => 0.1_f64..1e4],
        bits in 8_i64..=32,
        block in prop_oneof![Just(0), (0_u32..=12).prop_map(|power| 1_i64 << power)],
        weight in proptest::option::of(0_u32..1000),
        prg in prg(),
        threads in 1_usize..4,
    ) -> Case {
        let weight = if variance > 0.0 { None } else { weight };
        Case { update, clip_norm, scale, slack, variance, bits, block, weight, prg, threads }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn fused_equals_composed(case in case(), mask_prg in prg(), count in 0_u8..4) {
        let seeds: Vec<Seed> = (0..count).map(|index| seed(100 + index)).collect();
        let masks: Vec<Mask<'_>> = seeds.iter().enumerate().map(|(index, seed)| Mask {
            seed,
            prg: mask_prg,
            sign: if index % 2 == 0 { Sign::Add } else { Sign::Subtract },
        }).collect();
        prop_assert_eq!(case.fused(&masks), case.composed(&masks));
    }

    /// Read back from the bytes: the bound holds for every output, and each integer is a neighbour
    /// of the scaled value.
    #[test]
    fn every_output_is_inside_the_bound(mut case in case()) {
        case.weight = None;
        case.variance = 0.0;
        // The ring must hold the values to be read back.
        case.bits = 32;
        case.scale = case.scale.min(1e6 / case.clip_norm);
        let packed = case.fused(&[]).expect("a bound above the clip norm");
        let exact = case.scaled();
        let mut values = vec![0; exact.len() + CHECK_COORDINATES];
        unpack(&packed, case.ring(), &mut values).expect("our own bytes");
        let integers: Vec<i64> = values[..exact.len()]
            .iter()
            .map(|value| i64::from(i32::from_le_bytes(value.to_le_bytes())))
            .collect();
        let squared: i128 = integers.iter().map(|value| i128::from(*value).pow(2)).sum();
        #[allow(clippy::cast_precision_loss)] // far below 2^53
        let (squared, bound) = (squared as f64, case.quantize().l2_squared_bound);
        prop_assert!(squared <= bound, "{} above {}", squared, bound);
        for (value, exact) in integers.iter().zip(&exact) {
            #[allow(clippy::cast_precision_loss)] // far below 2^53
            let value = *value as f64;
            prop_assert!((value - exact).abs() < 1.0, "{} for {}", value, exact);
        }
    }

    #[test]
    fn rotation_keeps_the_norm_and_can_be_undone(
        update in update(9000), power in 0_u32..=12, sign_seed in any::<[u8; 32]>(),
    ) {
        let rotation = Rotation::new(1 << power, &sign_seed).expect("a power of two");
        let mut exact: Vec<f64> = update.iter().map(|value| f64::from(*value)).collect();
        exact.resize(rotation.padded(exact.len()), 0.0);
        let mut values = exact.clone();
        rotation.rotate(&mut values).expect("whole blocks");
        let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
        prop_assert!((norm(&values) - norm(&exact)).abs() <= 1e-13 * norm(&exact));
        rotation.rotate_back(&mut values).expect("whole blocks");
        for (value, exact) in values.iter().zip(&exact) {
            prop_assert!((value - exact).abs() <= 1e-12 * (1.0 + exact.abs()));
        }
    }

    /// Against the definition: entry (i, j) of the Hadamard matrix is -1 to the number of common bits.
    #[test]
    fn rotation_is_the_hadamard_matrix(
        values in proptest::collection::vec(-1.0_f64..1.0, 128), power in 0_u32..=7, place in 0_usize..128,
    ) {
        let block = 1_usize << power;
        let rotation = Rotation::new(1 << power, &SIGN_SEED).expect("a power of two");
        let mut ones = vec![0.0; 128];
        ones[place] = 1.0;
        rotation.rotate(&mut ones).expect("whole blocks");
        let mut rotated = values.clone();
        rotation.rotate(&mut rotated).expect("whole blocks");
        #[allow(clippy::cast_precision_loss)] // at most 128
        let spread = 1.0 / (block as f64).sqrt();
        let start = place / block * block;
        // A one spreads evenly over its block, with the signs of the matrix and its own sign.
        let own_sign = ones[start].signum();
        for (row, value) in ones.iter().enumerate() {
            let inside = (start..start + block).contains(&row);
            let sign = if ((row - start.min(row)) & (place - start)).count_ones() % 2 == 0 { 1.0 } else { -1.0 };
            let expected = if inside { own_sign * sign * spread } else { 0.0 };
            prop_assert!((value - expected).abs() < 1e-15);
        }
        // The rotation is linear, so one column at a time gives the whole of it.
        let product: f64 = ones.iter().zip(&rotated).map(|(a, b)| a * b).sum();
        prop_assert!((product - values[place]).abs() < 1e-13);
    }

    /// Sums of random cohorts: the gateway's object agrees with adding plain vectors.
    #[test]
    fn a_sum_is_what_plain_adding_gives(
        length in 5_usize..9000, bits in 8_i64..=32, cohort in 1_u8..4, mask_prg in prg(), threads in 1_usize..4,
        change in 1_u32.., place in any::<prop::sample::Index>(),
    ) {
        let ring = RingBits::new(bits).expect("8 to 32");
        let mut sum = RingSum::new(length, ring).expect("long enough");
        let mut expected = vec![0; length - CHECK_COORDINATES];
        let seeds: Vec<Seed> = (0..cohort).map(seed).collect();
        let masks = |sign| seeds.iter().map(move |seed| Mask { seed, prg: mask_prg, sign }).collect::<Vec<_>>();
        for (device, mask) in masks(Sign::Add).into_iter().enumerate() {
            let factor = 2_654_435_761_u32.wrapping_mul(u32::try_from(device).expect("small") + 1);
            let mut values: Vec<u32> = (0..u32::try_from(length).expect("small") - 4)
                .map(|i| i.wrapping_mul(factor) & ring.mask())
                .collect();
            add_in_ring(&mut expected, &values, ring).expect("same length");
            values.extend(check_coordinates(&values, ring, &SESSION_ID).expect("short"));
            mask_plainly(&mut values, bits, &[mask]).expect("valid");
            sum.add_packed(&pack(&values, ring).expect("reduced")).expect("well formed");
        }
        prop_assert!(!sum.checks_hold(&SESSION_ID).expect("sound") || bits < 12);
        sum.apply_masks(&masks(Sign::Subtract), threads, None).expect("valid");
        prop_assert!(sum.checks_hold(&SESSION_ID).expect("sound"));
        let mut found = Vec::new();
        sum.read(length - CHECK_COORDINATES, |value| found.push(value)).expect("as many");
        prop_assert_eq!(&found, &expected);
        // One wrong coordinate shows.
        let mut wrong = vec![0; length];
        wrong[place.index(length)] = change & ring.mask();
        prop_assume!(change & ring.mask() != 0);
        sum.add_packed(&pack(&wrong, ring).expect("reduced")).expect("well formed");
        prop_assert!(!sum.checks_hold(&SESSION_ID).expect("sound"));
    }

    #[test]
    fn a_sum_adds_well_formed_bytes_only(
        packed in proptest::collection::vec(any::<u8>(), 0..40), bits in 8_i64..=32, length in 5_usize..12,
    ) {
        let ring = RingBits::new(bits).expect("8 to 32");
        let mut sum = RingSum::new(length, ring).expect("long enough");
        let mut values = vec![0; length];
        let added = sum.add_packed(&packed);
        prop_assert_eq!(&added, &unpack(&packed, ring, &mut values));
        let mut found = Vec::new();
        sum.read(length - CHECK_COORDINATES, |value| found.push(value)).expect("as many");
        let expected = if added.is_ok() { values } else { vec![0; length] };
        prop_assert_eq!(&found, &expected[..length - CHECK_COORDINATES]);
    }

    #[test]
    fn decoding_undoes_encoding(
        mut case in case(), cohort in 1_i32..5,
    ) {
        case.bits = 32;
        case.variance = 0.0;
        case.weight = None;
        case.scale = 1e5 / case.clip_norm;
        let length = case.settings().vector_length(case.update.len());
        let mut sum = RingSum::new(length, case.ring()).expect("long enough");
        for _ in 0..cohort {
            sum.add_packed(&case.fused(&[]).expect("inside the bound")).expect("well formed");
        }
        let mut values = Vec::new();
        sum.read(length - CHECK_COORDINATES, |value| values.push(value)).expect("as many");
        let mut decoded = vec![0.0; case.update.len()];
        let rotation = case.rotation();
        decode_sum(&values, case.ring(), case.scale, rotation.as_ref(), &mut decoded).expect("valid");
        let norm = update_norm(&case.update).expect("finite");
        let factor = clip_factor(norm, case.clip_norm).expect("positive");
        // Each device is off by less than one unit per coordinate; a rotation spreads a block's errors.
        #[allow(clippy::cast_precision_loss)] // at most 4096
        let tolerance = f64::from(cohort) / case.scale * (case.block.max(1) as f64).sqrt() * 1.001;
        for (value, update) in decoded.iter().zip(&case.update) {
            let exact = f64::from(cohort) * f64::from(*update) * factor;
            prop_assert!((value - exact).abs() <= tolerance, "{} for {}", value, exact);
        }
    }
}

fn plain_case(update: Vec<f32>) -> Case {
    Case {
        update,
        clip_norm: 1.0,
        scale: 1000.0,
        slack: 1e30,
        variance: 0.0,
        bits: 20,
        block: 0,
        weight: None,
        prg: Prg::ChaCha20,
        threads: 1,
    }
}

#[test]
fn what_is_not_finite_is_refused_with_its_place() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut update = vec![0.5; 5000];
        update[4711] = bad;
        update[4999] = f32::NAN;
        let (index, count) = (4711, 2);
        let refused = CoreError::UpdateNotFinite { index, count };
        assert_eq!(plain_case(update).fused(&[]), Err(refused));
    }
    // The largest finite numbers are clipped like any other.
    assert!(plain_case(vec![f32::MAX; 100]).fused(&[]).is_ok());
}

#[test]
fn numbers_that_no_plan_has_are_refused() {
    let case = plain_case(vec![1.0; 10]);
    for clip_norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = Case {
            clip_norm,
            ..case.clone()
        }
        .fused(&[]);
        assert!(matches!(refused, Err(CoreError::ClipNorm { .. })));
    }
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = Case {
            scale,
            ..case.clone()
        }
        .fused(&[]);
        assert!(matches!(refused, Err(CoreError::QuantizeScale { .. })));
    }
    for threads in [0, 65] {
        let refused = Case {
            threads,
            slack: 0.0,
            ..case.clone()
        }
        .fused(&[]);
        assert!(matches!(refused, Err(CoreError::Threads { .. })));
    }
    let refused = Case {
        scale: 2e15,
        ..case.clone()
    }
    .fused(&[]);
    assert_eq!(refused, Err(CoreError::UpdateRange { index: 9 }));
    let refused = Case {
        variance: 1e12,
        ..case.clone()
    }
    .fused(&[]);
    assert!(matches!(refused, Err(CoreError::NoiseVariance { .. })));
    for block in [-1, 0, 3, 8192] {
        let refused = Rotation::new(block, &SIGN_SEED).err();
        assert_eq!(refused, Some(CoreError::RotationBlock { found: block }));
    }
    let rotation = Rotation::new(8, &SIGN_SEED).expect("a power of two");
    assert!(matches!(
        rotation.rotate(&mut [0.0; 12]),
        Err(CoreError::Length { .. })
    ));
    let settings = case.settings();
    let secrets = EncodeSecrets {
        rounding_seed: &seed(1),
        rounding_prg: Prg::ChaCha20,
        noise: &NoNoise,
        masks: &[],
    };
    let refused = encode_and_mask(&case.update, &settings, &secrets, &mut [0; 34]);
    assert!(matches!(
        refused,
        Err(CoreError::Length {
            expected: 35,
            found: 34,
            ..
        })
    ));
}

/// A bound below the clip norm cannot be kept, and no byte is written for it.
#[test]
fn an_update_over_the_bound_is_refused() {
    let case = Case {
        slack: -10_000.0,
        update: vec![100.0; 50],
        ..plain_case(vec![])
    };
    assert!(matches!(case.fused(&[]), Err(CoreError::UpdateNorm { .. })));
    assert_eq!(case.fused(&[]), case.composed(&[]));
}

/// Both ways of summing squares, f64 and wide integers, are taken where they must be.
#[test]
fn long_vectors_of_large_integers_are_bounded_exactly() {
    for scale in [1e5, 1e9, 1e14] {
        let case = Case {
            scale,
            slack: 0.0,
            update: (0..5000_u16).map(|i| f32::from(i % 7) - 3.0).collect(),
            ..plain_case(vec![])
        };
        assert_eq!(case.fused(&[]), case.composed(&[]), "scale {scale}");
    }
}

#[test]
fn a_set_flag_ends_the_work() {
    let cancel = CancelFlag::new();
    cancel.cancel();
    let case = plain_case(vec![0.25; 9000]);
    let settings = EncodeSettings {
        cancel: Some(cancel.clone()),
        ..case.settings()
    };
    let secrets = EncodeSecrets {
        rounding_seed: &seed(1),
        rounding_prg: Prg::ChaCha20,
        noise: &NoNoise,
        masks: &[],
    };
    let mut packed = vec![0; settings.packed_bytes(9000).expect("small")];
    let refused = encode_and_mask(&case.update, &settings, &secrets, &mut packed);
    assert_eq!(refused, Err(CoreError::Cancelled));

    let ring = case.ring();
    let mut sum = RingSum::new(9000, ring).expect("long enough");
    let mask_seed = seed(7);
    let mask = Mask {
        seed: &mask_seed,
        prg: Prg::ChaCha20,
        sign: Sign::Add,
    };
    assert_eq!(
        sum.apply_masks(&[mask], 1, Some(&cancel)),
        Err(CoreError::Cancelled)
    );
    // Half unmasked, it must not be taken for a sum.
    assert_eq!(sum.checks_hold(&SESSION_ID), Err(CoreError::SumSpoilt));
    assert_eq!(sum.add_packed(&[]), Err(CoreError::SumSpoilt));
    assert_eq!(sum.read(1, |_| ()), Err(CoreError::SumSpoilt));
    assert_eq!(sum.apply_masks(&[], 1, None), Err(CoreError::SumSpoilt));
}

#[test]
fn weights_stay_within_their_bound() {
    assert_eq!(weight_slot(1, 1, true), Ok(None));
    for weight in [0, 1, 7, 9] {
        let slot = u32::try_from(weight).expect("small");
        assert_eq!(weight_slot(weight, 9, false), Ok(Some(slot)));
        assert_eq!(weight_slot(weight, 9, true), Err(CoreError::WeightedNoise));
    }
    for (weight, bound) in [
        (0, 1),
        (2, 1),
        (-1, 9),
        (10, 9),
        (1, 0),
        (1, -1),
        (1, 1 << 32),
    ] {
        let refused = CoreError::Weight {
            found: weight,
            bound,
        };
        assert_eq!(weight_slot(weight, bound, false), Err(refused));
    }
}

#[test]
fn sums_have_room_for_values() {
    let ring = RingBits::new(8).expect("8 to 32");
    for length in 0..5 {
        assert!(matches!(
            RingSum::new(length, ring),
            Err(CoreError::Length { .. })
        ));
    }
    let sum = RingSum::new(5, ring).expect("long enough");
    assert_eq!(sum.len(), 5);
    assert!(sum.checks_hold(&SESSION_ID).expect("sound"));
    assert!(matches!(sum.read(2, |_| ()), Err(CoreError::Length { .. })));
}

/// A mean over many roundings of one value: off by less than five standard errors.
#[test]
fn rounding_is_unbiased() {
    const COUNT: usize = 400_000;
    let update = vec![0.3_f32; COUNT];
    let case = Case {
        clip_norm: 1e9,
        scale: 1.0,
        bits: 8,
        ..plain_case(update)
    };
    for prg in Prg::ALL {
        let packed = Case {
            prg,
            ..case.clone()
        }
        .fused(&[])
        .expect("valid");
        let ones: usize = packed[..COUNT].iter().map(|byte| usize::from(*byte)).sum();
        #[allow(clippy::cast_precision_loss)] // far below 2^53
        let (mean, count) = (ones as f64 / COUNT as f64, COUNT as f64);
        assert!((mean - 0.3).abs() < 5.0 * (0.21 / count).sqrt(), "{mean}");
    }
}
