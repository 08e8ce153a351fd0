//! A chunk packet: what reads has one form only, and the store takes no byte that is not in its manifest.

#![no_main]

use edgefl_core::{ChunkPacket, ChunkVerdict, UploadStage, CHUNK_HASH_BYTES, MAX_CHUNK_BYTES};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // No input has the hash of zeros, so nothing may be stored.
    let hashes = [0; 3 * CHUNK_HASH_BYTES];
    let stage = UploadStage::new(1 << 20, 1);
    stage.open("d/x", 21, 10, &hashes).expect("room for one");
    let verdict = stage.accept("d/x", data);
    let Some(packet) = ChunkPacket::read(data) else {
        assert_eq!(verdict, ChunkVerdict::Malformed);
        return;
    };
    assert_eq!(packet.to_bytes(), data);
    assert!((1..=MAX_CHUNK_BYTES).contains(&packet.data.len()));
    let expected = match (packet.index, packet.data.len()) {
        (0 | 1, 10) | (2, 1) => ChunkVerdict::WrongHash,
        (0..=2, _) => ChunkVerdict::WrongSize,
        _ => ChunkVerdict::NoSuchChunk,
    };
    assert_eq!(verdict, expected);
    assert_eq!(stage.missing("d/x"), Ok(vec![0b111]));
});
