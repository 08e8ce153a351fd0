//! Any order of opening, sending, taking and discarding: two blobs against a list of what has arrived.
//!
//! Each step is three bytes: what, which blob and chunk, and a byte to flip.

#![no_main]

use std::collections::BTreeMap;

use edgefl_core::{ChunkPacket, UploadStage, CHUNK_HASH_BYTES};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

const KEYS: [&str; 3] = ["a/1", "b/1", "b/2"];
const CHUNK_BYTES: usize = 7;
/// Bytes of the blobs, so that no two of them fit beside the third.
const SIZES: [usize; 3] = [1, 50, 75];
const MAX_BYTES: usize = 75 + 11 * CHUNK_HASH_BYTES + 50 + 8 * CHUNK_HASH_BYTES;

fn blob(number: usize) -> Vec<u8> {
    vec![u8::try_from(number).expect("small"); SIZES[number]]
}

fn hashes(blob: &[u8]) -> Vec<u8> {
    blob.chunks(CHUNK_BYTES).flat_map(Sha256::digest).collect()
}

/// What a blob takes of the bound.
fn held(number: usize) -> usize {
    SIZES[number] + SIZES[number].div_ceil(CHUNK_BYTES) * CHUNK_HASH_BYTES
}

fuzz_target!(|data: &[u8]| {
    let stage = UploadStage::new(MAX_BYTES, 2);
    let mut open: BTreeMap<usize, Vec<bool>> = BTreeMap::new();
    for step in data.chunks_exact(3) {
        let number = usize::from(step[1] % 3);
        let (key, blob) = (KEYS[number], blob(number));
        match step[0] % 4 {
            0 => open_blob(&stage, &mut open, number, &blob),
            1 => send(&stage, open.get_mut(&number), key, &blob, step),
            2 => {
                let is_whole = open
                    .get(&number)
                    .is_some_and(|has| has.iter().all(|has| *has));
                assert_eq!(
                    stage.take(key, <[u8]>::to_vec).ok(),
                    is_whole.then_some(blob)
                );
                if is_whole {
                    open.remove(&number);
                }
            }
            _ => assert_eq!(stage.discard(key), open.remove(&number).is_some()),
        }
        assert_eq!(
            stage.held_bytes(),
            open.keys().map(|number| held(*number)).sum()
        );
        assert_eq!(stage.keys().len(), open.len());
        for (number, has) in &open {
            let missing = has.iter().filter(|has| !**has).count();
            assert_eq!(stage.missing_count(KEYS[*number]), Ok(missing));
        }
    }
});

fn open_blob(
    stage: &UploadStage,
    open: &mut BTreeMap<usize, Vec<bool>>,
    number: usize,
    blob: &[u8],
) {
    let all: usize = open.keys().map(|number| held(*number)).sum();
    let is_open = open.contains_key(&number);
    let fits = is_open || (open.len() < 2 && all + held(number) <= MAX_BYTES);
    let opened = stage.open(KEYS[number], blob.len(), CHUNK_BYTES, &hashes(blob));
    assert_eq!(opened.is_ok(), fits);
    if fits {
        let chunks = blob.len().div_ceil(CHUNK_BYTES);
        open.entry(number).or_insert_with(|| vec![false; chunks]);
    }
}

fn send(stage: &UploadStage, has: Option<&mut Vec<bool>>, key: &str, blob: &[u8], step: &[u8]) {
    let index = usize::from(step[1] / 3) % (blob.len().div_ceil(CHUNK_BYTES) + 1);
    let mut data: Vec<u8> = blob.chunks(CHUNK_BYTES).nth(index).unwrap_or(&[0]).to_vec();
    data[0] ^= step[2];
    let packet = ChunkPacket {
        index: u32::try_from(index).expect("small"),
        data: &data,
    };
    let verdict = stage.accept(key, &packet.to_bytes()).name();
    let expected = match has {
        None => "no-such-transfer",
        Some(has) if index >= has.len() => "no-such-chunk",
        Some(has) if has[index] => "duplicate",
        Some(_) if step[2] != 0 => "wrong-hash",
        Some(has) => {
            has[index] = true;
            if has.iter().all(|has| *has) {
                "whole"
            } else {
                "stored"
            }
        }
    };
    assert_eq!(verdict, expected);
}
