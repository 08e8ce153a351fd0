//! Speed of the hot functions, with fixed seeds.

#![allow(missing_docs)] // the macro below makes an undocumented function

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use edgefl_core::{
    add_skellam_noise, apply_masks, check_coordinates, combine_shares, pack, quantize,
    split_secret, unpack, QuantizeSettings, RingBits, Seed, Share,
};

const COORDINATES: usize = 1 << 16;

fn seed(byte: u8) -> Seed {
    Seed::from_bytes(&[byte; 32]).expect("32 bytes")
}

fn ring() -> RingBits {
    RingBits::new(20).expect("8 to 32")
}

fn masks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("masks");
    for masks in [1_u8, 30] {
        let seeds: Vec<Seed> = (0..masks).map(seed).collect();
        let seeds: Vec<&Seed> = seeds.iter().collect();
        let mut values = vec![0; COORDINATES];
        group.throughput(Throughput::Bytes(4 * COORDINATES as u64 * u64::from(masks)));
        group.bench_function(format!("apply {masks}"), |bencher| {
            bencher.iter(|| apply_masks(black_box(&mut values), ring(), &seeds, &[], 1));
        });
    }
    group.finish();
}

fn sharing(criterion: &mut Criterion) {
    let points: Vec<i64> = (1..=101).collect();
    let (secret, coefficients) = (seed(1), seed(2));
    let shares = split_secret(&secret, 67, &points, &coefficients).expect("valid");
    let held: Vec<Share<'_>> = points
        .iter()
        .zip(&shares)
        .map(|(point, bytes)| Share {
            point: *point,
            bytes: bytes.as_slice(),
        })
        .collect();
    let mut group = criterion.benchmark_group("sharing 67 of 101");
    group.throughput(Throughput::Bytes(32));
    group.bench_function("split", |bencher| {
        bencher.iter(|| split_secret(black_box(&secret), 67, &points, &coefficients));
    });
    group.bench_function("combine", |bencher| {
        bencher.iter(|| combine_shares(black_box(&held), 67));
    });
    group.finish();
}

fn packing(criterion: &mut Criterion) {
    let mut values = vec![0; COORDINATES];
    apply_masks(&mut values, ring(), &[&seed(1)], &[], 1).expect("valid");
    let packed = pack(&values, ring()).expect("reduced");
    let mut group = criterion.benchmark_group("packing 20 bits");
    group.throughput(Throughput::Bytes(4 * COORDINATES as u64));
    group.bench_function("pack", |bencher| {
        bencher.iter(|| pack(black_box(&values), ring()));
    });
    group.bench_function("unpack", |bencher| {
        bencher.iter(|| unpack(black_box(&packed), ring(), &mut values));
    });
    group.bench_function("check", |bencher| {
        bencher.iter(|| check_coordinates(black_box(&values), ring(), &[3; 32]));
    });
    group.finish();
}

fn integers(criterion: &mut Criterion) {
    let update: Vec<f32> = (0_u16..=u16::MAX)
        .map(|i| f32::from(i) / 65_536.0)
        .collect();
    let mut out = vec![0; COORDINATES];
    let settings = QuantizeSettings {
        scale: 1000.0,
        l2_squared_bound: f64::INFINITY,
        max_attempts: 1,
    };
    let mut group = criterion.benchmark_group("integers");
    group.throughput(Throughput::Bytes(8 * COORDINATES as u64));
    group.bench_function("quantize", |bencher| {
        bencher.iter(|| quantize(black_box(&update), &mut out, settings, &seed(1)));
    });
    for variance in [100.0, 1e6] {
        group.bench_function(format!("skellam {variance}"), |bencher| {
            bencher.iter(|| add_skellam_noise(black_box(&mut out), variance, &seed(1)));
        });
    }
    group.finish();
}

criterion_group!(benches, masks, sharing, packing, integers);
criterion_main!(benches);
