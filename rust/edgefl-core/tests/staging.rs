//! Arriving blobs: any order, any repeats, wrong chunks, bounds, and several threads at once.

use std::sync::Arc;

use edgefl_core::{
    ChunkPacket, ChunkVerdict, CoreError, StageProblem, UploadStage, CHUNK_HASH_BYTES,
    CHUNK_HEADER_BYTES, MAX_CHUNK_BYTES, MAX_STAGE_KEY_BYTES,
};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

const ROOM: usize = 1 << 20;

fn hashes(blob: &[u8], chunk_bytes: usize) -> Vec<u8> {
    blob.chunks(chunk_bytes).flat_map(Sha256::digest).collect()
}

fn packet(index: usize, data: &[u8]) -> Vec<u8> {
    let index = u32::try_from(index).expect("small");
    ChunkPacket { index, data }.to_bytes()
}

fn opened(blob: &[u8], chunk_bytes: usize) -> UploadStage {
    let stage = UploadStage::new(ROOM, 4);
    stage
        .open("d/x", blob.len(), chunk_bytes, &hashes(blob, chunk_bytes))
        .expect("room");
    stage
}

fn problem<T>(result: Result<T, CoreError>) -> StageProblem {
    match result {
        Err(CoreError::Stage(problem)) => problem,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("accepted"),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Right(usize),
    Flipped(usize, usize),
    Cut(usize),
    Beyond(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_usize..40).prop_map(Step::Right),
        1 => (0_usize..40, 0_usize..4096).prop_map(|(chunk, byte)| Step::Flipped(chunk, byte)),
        1 => (0_usize..40).prop_map(Step::Cut),
        1 => any::<u32>().prop_map(Step::Beyond),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    /// The stage agrees with a list of flags, whatever arrives in whatever order.
    #[test]
    fn it_holds_what_a_list_of_flags_says(
        blob in prop::collection::vec(any::<u8>(), 1..600),
        chunk_bytes in 1_usize..70,
        steps in steps(),
    ) {
        let chunks: Vec<&[u8]> = blob.chunks(chunk_bytes).collect();
        let mut has = vec![false; chunks.len()];
        let stage = opened(&blob, chunk_bytes);
        for step in steps {
            match step {
                Step::Right(chunk) => {
                    let chunk = chunk % chunks.len();
                    let verdict = stage.accept("d/x", &packet(chunk, chunks[chunk]));
                    let had = std::mem::replace(&mut has[chunk], true);
                    let expected = match (had, has.iter().all(|has| *has)) {
                        (true, _) => ChunkVerdict::Duplicate,
                        (false, true) => ChunkVerdict::Whole,
                        (false, false) => ChunkVerdict::Stored,
                    };
                    prop_assert_eq!(verdict, expected);
                }
                Step::Flipped(chunk, byte) => {
                    let chunk = chunk % chunks.len();
                    let mut data = chunks[chunk].to_vec();
                    let byte = byte % data.len();
                    data[byte] ^= 1;
                    let expected = if has[chunk] {
                        ChunkVerdict::Duplicate
                    } else {
                        ChunkVerdict::WrongHash
                    };
                    prop_assert_eq!(stage.accept("d/x", &packet(chunk, &data)), expected);
                }
                Step::Cut(chunk) => {
                    let chunk = chunk % chunks.len();
                    let data = [chunks[chunk], &[0]].concat();
                    prop_assert_eq!(
                        stage.accept("d/x", &packet(chunk, &data)),
                        ChunkVerdict::WrongSize
                    );
                }
                Step::Beyond(index) => {
                    let index = index.saturating_add(u32::try_from(chunks.len()).expect("small"));
                    let bytes = ChunkPacket { index, data: &[1] }.to_bytes();
                    prop_assert_eq!(stage.accept("d/x", &bytes), ChunkVerdict::NoSuchChunk);
                }
            }
            let missing = stage.missing("d/x").expect("open");
            prop_assert_eq!(missing.len(), has.len().div_ceil(8));
            for chunk in 0..missing.len() * 8 {
                let bit = missing[chunk / 8] >> (chunk % 8) & 1 == 1;
                prop_assert_eq!(bit, has.get(chunk).is_some_and(|has| !has));
            }
            let count = has.iter().filter(|has| !**has).count();
            prop_assert_eq!(stage.missing_count("d/x"), Ok(count));
        }
        let whole = has.iter().all(|has| *has).then(|| blob.clone());
        prop_assert_eq!(stage.read("d/x", <[u8]>::to_vec).ok(), whole.clone());
        prop_assert_eq!(stage.take("d/x", <[u8]>::to_vec).ok(), whole);
    }

    /// No bytes upset it, and what it calls a chunk has one form only.
    #[test]
    fn any_bytes_get_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let stage = opened(&[7; 30], 10);
        let verdict = stage.accept("d/x", &bytes);
        let read = ChunkPacket::read(&bytes);
        prop_assert_eq!(read.is_none(), verdict == ChunkVerdict::Malformed);
        if let Some(packet) = read {
            prop_assert_eq!(packet.to_bytes(), bytes);
        }
    }
}

#[test]
fn what_is_no_chunk_packet_is_malformed() {
    let most = vec![1; CHUNK_HEADER_BYTES + MAX_CHUNK_BYTES];
    assert!(ChunkPacket::read(&most).is_some());
    for bytes in [
        &[][..],
        &[1, 0, 0, 0],
        &[1, 0, 0, 0, 0],
        &[2, 0, 0, 0, 0, 9],
        &[most.clone(), vec![1]].concat(),
    ] {
        assert_eq!(ChunkPacket::read(bytes), None);
    }
}

#[test]
fn a_blob_that_was_taken_or_discarded_is_unknown_and_its_room_is_free() {
    let stage = opened(&[7; 30], 10);
    let held = 30 + 3 * CHUNK_HASH_BYTES;
    assert_eq!(stage.held_bytes(), held);
    assert_eq!(
        problem(stage.take("d/x", <[u8]>::to_vec)),
        StageProblem::Incomplete { missing: 3 }
    );
    for index in 0..3 {
        assert!(stage.accept("d/x", &packet(index, &[7; 10])).is_sound());
    }
    assert_eq!(stage.held_bytes(), held);
    assert_eq!(stage.take("d/x", <[u8]>::to_vec), Ok(vec![7; 30]));
    assert_eq!(stage.held_bytes(), 0);
    assert_eq!(
        problem(stage.take("d/x", <[u8]>::to_vec)),
        StageProblem::Unknown
    );
    assert_eq!(problem(stage.missing("d/x")), StageProblem::Unknown);
    assert_eq!(
        stage.accept("d/x", &packet(0, &[7; 10])),
        ChunkVerdict::NoSuchTransfer
    );
    assert!(!stage.discard("d/x"));
}

/// A blob that came in chunks is the same as it would be in one piece, wherever that is possible.
#[test]
fn a_blob_that_is_taken_out_has_its_bytes_and_a_name_of_its_own() {
    let small: Vec<u8> = (0..30).collect();
    let large = vec![7; MAX_CHUNK_BYTES + 1];
    let name = |blob: &[u8], chunk_bytes: usize| {
        let stage = Arc::new(opened(blob, chunk_bytes));
        assert_eq!(
            stage.take_out("d/x").err(),
            Some(
                StageProblem::Incomplete {
                    missing: blob.len().div_ceil(chunk_bytes)
                }
                .into()
            )
        );
        for (index, chunk) in blob.chunks(chunk_bytes).enumerate() {
            assert!(stage.accept("d/x", &packet(index, chunk)).is_sound());
        }
        let taken = stage.take_out("d/x").expect("whole");
        assert_eq!(taken.bytes(), blob);
        assert_eq!((stage.held_bytes(), stage.keys().len()), (0, 0));
        *taken.name()
    };
    assert_eq!(
        name(&small, 10).as_slice(),
        Sha256::digest(&small).as_slice()
    );
    assert_eq!(name(&small, 10), name(&small, 7));
    let other = {
        let mut other = large.clone();
        other[MAX_CHUNK_BYTES] = 8;
        other
    };
    assert_eq!(name(&large, MAX_CHUNK_BYTES), name(&large, MAX_CHUNK_BYTES));
    assert_ne!(name(&large, MAX_CHUNK_BYTES), name(&other, MAX_CHUNK_BYTES));
    assert_ne!(name(&large, MAX_CHUNK_BYTES), name(&large, 65_536));
}

/// Buffers are used again: what is read is of this blob all the same, and the bound holds.
#[test]
fn nothing_of_one_blob_is_in_the_next() {
    let stage = UploadStage::new(800, 4);
    for (byte, size) in [(1_u8, 100_usize), (2, 60), (3, 100), (4, 90), (5, 50)] {
        let blob = vec![byte; size];
        stage.open("k", size, 10, &hashes(&blob, 10)).expect("room");
        for (index, chunk) in blob.chunks(10).enumerate().skip(1) {
            assert_eq!(
                stage.accept("k", &packet(index, chunk)),
                ChunkVerdict::Stored
            );
        }
        if byte % 2 == 0 {
            assert!(stage.discard("k"));
            continue;
        }
        assert_eq!(
            stage.accept("k", &packet(0, &blob[..10])),
            ChunkVerdict::Whole
        );
        assert_eq!(stage.take("k", <[u8]>::to_vec), Ok(blob));
    }
    assert_eq!(stage.held_bytes(), 0);
}

#[test]
fn opening_again_keeps_what_arrived_and_another_manifest_is_refused() {
    let (blob, other) = ([7; 30], [8; 30]);
    let stage = opened(&blob, 10);
    stage.accept("d/x", &packet(1, &[7; 10]));
    assert_eq!(stage.open("d/x", 30, 10, &hashes(&blob, 10)), Ok(()));
    assert_eq!(stage.missing("d/x"), Ok(vec![0b101]));
    assert_eq!(
        problem(stage.open("d/x", 30, 10, &hashes(&other, 10))),
        StageProblem::Reopened
    );
    assert_eq!(stage.missing("d/x"), Ok(vec![0b101]));
}

#[test]
fn bounds_count_what_is_announced_and_how_many() {
    let hash = [0; CHUNK_HASH_BYTES];
    let stage = UploadStage::new(2 * (100 + CHUNK_HASH_BYTES), 2);
    assert_eq!(stage.open("a", 100, 100, &hash), Ok(()));
    let full = problem(stage.open("b", 101, 101, &hash));
    assert!(matches!(
        full,
        StageProblem::Full {
            wanted_bytes: 133,
            ..
        }
    ));
    assert_eq!(stage.open("b", 1, 1, &hash), Ok(()));
    assert!(matches!(
        problem(stage.open("c", 1, 1, &hash)),
        StageProblem::Full { blobs: 2, .. }
    ));
    assert!(stage.discard("a"));
    assert_eq!(stage.open("c", 100, 100, &hash), Ok(()));
    let mut keys = stage.keys();
    keys.sort();
    assert_eq!(keys, ["b", "c"]);
}

#[test]
fn manifests_that_contradict_themselves_are_refused() {
    let stage = UploadStage::new(usize::MAX, 4);
    let long = "k".repeat(MAX_STAGE_KEY_BYTES + 1);
    for (key, size, chunk, hashes, code) in [
        ("", 1, 1, 32, "E-STAGE-KEY"),
        (long.as_str(), 1, 1, 32, "E-STAGE-KEY"),
        ("k", 1, 0, 32, "E-STAGE-MANIFEST"),
        ("k", 1, MAX_CHUNK_BYTES + 1, 32, "E-STAGE-MANIFEST"),
        ("k", 0, 1, 0, "E-STAGE-MANIFEST"),
        ("k", 11, 10, 32, "E-STAGE-MANIFEST"),
        ("k", 10, 10, 31, "E-STAGE-MANIFEST"),
        ("k", usize::MAX, 1, 32, "E-STAGE-MANIFEST"),
    ] {
        let refusal = problem(stage.open(key, size, chunk, &vec![0; hashes]));
        assert_eq!(CoreError::from(refusal).report().code, code);
    }
    assert_eq!(stage.held_bytes(), 0);
}

/// Four threads send every chunk of one blob: each chunk is stored once and one thread ends it.
#[test]
fn threads_share_one_blob() {
    let blob: Vec<u8> = (0_u32..64_000).flat_map(u32::to_le_bytes).collect();
    let stage = opened(&blob, 1000);
    let verdicts: Vec<ChunkVerdict> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let chunks = blob.chunks(1000).enumerate();
                    chunks
                        .map(|(index, chunk)| stage.accept("d/x", &packet(index, chunk)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        senders
            .into_iter()
            .flat_map(|sender| sender.join().expect("no panic"))
            .collect()
    });
    let count = |wanted| verdicts.iter().filter(|found| **found == wanted).count();
    assert_eq!(count(ChunkVerdict::Whole), 1);
    assert_eq!(count(ChunkVerdict::Stored), 255);
    assert_eq!(count(ChunkVerdict::Duplicate), 3 * 256);
    assert_eq!(stage.take("d/x", <[u8]>::to_vec), Ok(blob));
}
