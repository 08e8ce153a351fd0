//! Speed of taking a chunk into its blob, hash and copy included, and of the hash alone.
//!
//! Without the processor's SHA unit: `RUSTFLAGS='--cfg sha2_backend="soft"' cargo bench --bench staging`.

#![allow(missing_docs)] // the macro below makes an undocumented function

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, BatchSize, Criterion, Throughput};
use edgefl_core::{ChunkPacket, UploadStage};
use sha2::{Digest, Sha256};

const CHUNKS: usize = 16;

fn staging(criterion: &mut Criterion) {
    for chunk_bytes in [4_096, 65_536, 122_880] {
        let blob: Vec<u8> = (0..chunk_bytes * CHUNKS)
            .map(|i| i.to_le_bytes()[0])
            .collect();
        let hashes: Vec<u8> = blob.chunks(chunk_bytes).flat_map(Sha256::digest).collect();
        let packets: Vec<Vec<u8>> = (0..)
            .zip(blob.chunks(chunk_bytes))
            .map(|(index, data)| ChunkPacket { index, data }.to_bytes())
            .collect();
        let opened = || {
            let stage = UploadStage::new(1 << 24, 1);
            stage
                .open("d/x", blob.len(), chunk_bytes, &hashes)
                .expect("room");
            stage
        };
        let mut group = criterion.benchmark_group(format!("{CHUNKS} chunks of {chunk_bytes}"));
        group.throughput(Throughput::Bytes(blob.len() as u64));
        group.bench_function("hash", |bencher| {
            bencher.iter(|| {
                for chunk in black_box(&blob).chunks(chunk_bytes) {
                    black_box(Sha256::digest(chunk));
                }
            });
        });
        group.bench_function("stage", |bencher| {
            bencher.iter_batched(
                opened,
                |stage| {
                    for packet in &packets {
                        black_box(stage.accept("d/x", packet));
                    }
                    stage
                },
                BatchSize::LargeInput,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, staging);
criterion_main!(benches);
