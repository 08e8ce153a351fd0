//! Speed of the hot functions, with fixed seeds.

#![allow(missing_docs)] // the macro below makes an undocumented function

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Bencher, Criterion, Throughput};
use edgefl_core::{
    add_skellam_noise, apply_masks, check_coordinates, combine_shares, pack, quantize,
    split_secret, unpack, verify, AgreementKey, Backend, Lane, Mask, MaskExpander, Prg,
    QuantizeSettings, RingBits, Seed, Share, Sign, SigningKey, TILE_BYTES,
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
    for prg in Prg::ALL {
        for backend in Backend::available(prg) {
            let name = format!("{} {} 30 masks", prg.name(), backend.name());
            group.throughput(Throughput::Bytes(TILE_BYTES as u64 * 30));
            group.bench_function(format!("{name} u16"), tile_bench::<u16>(prg, backend));
            group.bench_function(format!("{name} u32"), tile_bench::<u32>(prg, backend));
        }
    }
    group.finish();
}

/// Adds 30 masks to one tile: the loop that all masking consists of.
fn tile_bench<L: Lane>(prg: Prg, backend: Backend) -> impl FnMut(&mut Bencher<'_>) {
    let seeds: Vec<Seed> = (0..30).map(seed).collect();
    let masks: Vec<Mask<'_>> = seeds.iter().map(|seed| mask(seed, prg)).collect();
    let expander = MaskExpander::with_backend(&masks, backend).expect("listed as available");
    let mut tile = vec![L::default(); TILE_BYTES / L::BYTES];
    move |bencher| bencher.iter(|| expander.add_to_tile(black_box(&mut tile), 0))
}

fn mask(seed: &Seed, prg: Prg) -> Mask<'_> {
    Mask {
        seed,
        prg,
        sign: Sign::Add,
    }
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

fn keys(criterion: &mut Criterion) {
    let key = AgreementKey::from_seed(&seed(1));
    let peers: Vec<[u8; 32]> = (2..102)
        .map(|byte| AgreementKey::from_seed(&seed(byte)).public_key())
        .collect();
    let peers: Vec<&[u8]> = peers.iter().map(<[u8; 32]>::as_slice).collect();
    let infos = [b"info".as_slice(); 100];
    let signer = SigningKey::from_seed(&seed(1));
    let (public_key, message) = (signer.public_key(), [7; 200]);
    let signature = signer.sign(&message);
    let mut group = criterion.benchmark_group("keys");
    group.throughput(Throughput::Elements(100));
    group.bench_function("agree with 100", |bencher| {
        bencher.iter(|| key.agree_many(black_box(&peers), b"salt", &infos, 1));
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("verify", |bencher| {
        bencher.iter(|| verify(black_box(&public_key), &message, &signature));
    });
    group.finish();
}

fn packing(criterion: &mut Criterion) {
    let mut values = vec![0; COORDINATES];
    let key = seed(1);
    apply_masks(&mut values, ring(), &[mask(&key, Prg::ChaCha20)], 1, None).expect("valid");
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

criterion_group!(benches, masks, sharing, keys, packing, integers);
criterion_main!(benches);
