//! Speed of the device path and of the gateway's sum, per coordinate, with fixed seeds.

#![allow(missing_docs)] // the macro below makes an undocumented function

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{criterion_group, criterion_main, BenchmarkGroup, Criterion, Throughput};
use edgefl_core::{
    check_coordinates, decode_sum, encode_and_mask, update_norm, EncodeSecrets, EncodeSettings,
    Mask, NoNoise, Prg, QuantizeSettings, RingBits, RingSum, Rotation, Seed, Sign,
};

const COORDINATES: usize = 1 << 18;
const SESSION_ID: [u8; 32] = [3; 32];

fn seed(byte: u8) -> Seed {
    Seed::from_bytes(&[byte; 32]).expect("32 bytes")
}

fn ring(bits: i64) -> RingBits {
    RingBits::new(bits).expect("8 to 32")
}

fn rotation() -> Rotation {
    Rotation::new(4096, &[5; 32]).expect("a power of two")
}

fn update() -> Vec<f32> {
    (0..COORDINATES)
        .map(|i| (f32::from(u16::try_from(i % 251).expect("small")) - 125.0) / 65_536.0)
        .collect()
}

/// The update is twice as long as the clip norm, so that the norm must be checked.
fn settings(bits: i64, rotation: Option<Rotation>) -> EncodeSettings<'static> {
    let clip_norm = update_norm(&update()).expect("finite") / 2.0;
    let scale = f64::from(1 << 13) / clip_norm;
    #[allow(clippy::cast_precision_loss)] // 2^18
    let spread = COORDINATES as f64 / 4.0;
    EncodeSettings {
        clip_norm,
        quantize: QuantizeSettings {
            scale,
            l2_squared_bound: (scale * clip_norm).powi(2) + spread + scale * clip_norm,
            max_attempts: 64,
        },
        ring: ring(bits),
        rotation,
        weight: None,
        session_id: &SESSION_ID,
        threads: 1,
        cancel: None,
    }
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(COORDINATES as u64));
    group.sample_size(20);
    group
}

fn encode(criterion: &mut Criterion) {
    let mut group = group(criterion, "encode");
    let update = update();
    let seeds: Vec<Seed> = (0..30).map(seed).collect();
    for (name, prg) in [("aes", Prg::Aes128Ctr), ("chacha", Prg::ChaCha20)] {
        for (masks, bits, is_rotated) in [
            (0, 20, false),
            (0, 20, true),
            (0, 16, false),
            (30, 20, false),
            (30, 20, true),
            (30, 16, false),
        ] {
            let settings = settings(bits, is_rotated.then(rotation));
            let masks: Vec<Mask<'_>> = seeds[..masks]
                .iter()
                .map(|seed| Mask {
                    seed,
                    prg,
                    sign: Sign::Subtract,
                })
                .collect();
            let rounding_seed = seed(99);
            let secrets = EncodeSecrets {
                rounding_seed: &rounding_seed,
                rounding_prg: prg,
                noise: &NoNoise,
                masks: &masks,
            };
            let mut packed = vec![0; settings.packed_bytes(COORDINATES).expect("small")];
            let rotated = if is_rotated { " rotated" } else { "" };
            let name = format!("{name}, {} masks, {bits} bits{rotated}", masks.len());
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    encode_and_mask(black_box(&update), &settings, &secrets, &mut packed)
                        .expect("inside the bound");
                });
            });
        }
    }
    group.finish();
}

fn steps(criterion: &mut Criterion) {
    let mut group = group(criterion, "steps");
    let update = update();
    group.bench_function("norm", |bencher| {
        bencher.iter(|| update_norm(black_box(&update)));
    });
    let values: Vec<u32> = (0..u32::try_from(COORDINATES).expect("small")).collect();
    group.bench_function("check", |bencher| {
        bencher.iter(|| check_coordinates(black_box(&values), ring(20), &SESSION_ID));
    });
    let mut rotated = vec![1.0; COORDINATES];
    let rotation = rotation();
    group.bench_function("rotate", |bencher| {
        bencher.iter(|| rotation.rotate(black_box(&mut rotated)));
    });
    let mut decoded = vec![0.0; COORDINATES];
    group.bench_function("decode rotated", |bencher| {
        bencher.iter(|| {
            decode_sum(
                black_box(&values),
                ring(20),
                10.0,
                Some(&rotation),
                &mut decoded,
            )
        });
    });
    group.finish();
}

fn summing(criterion: &mut Criterion) {
    let mut group = group(criterion, "sum");
    for bits in [12, 16, 20] {
        let mut sum = RingSum::new(COORDINATES, ring(bits)).expect("long enough");
        let size = COORDINATES / 8 * usize::try_from(bits).expect("small");
        let packed: Vec<u8> = (0..=250).cycle().take(size).collect();
        group.bench_function(format!("add packed, {bits} bits"), |bencher| {
            bencher.iter(|| sum.add_packed(black_box(&packed)));
        });
        group.bench_function(format!("check, {bits} bits"), |bencher| {
            bencher.iter(|| sum.checks_hold(black_box(&SESSION_ID)));
        });
    }
    group.finish();
}

criterion_group!(benches, encode, steps, summing);
criterion_main!(benches);
