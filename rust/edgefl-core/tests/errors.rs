//! Every error has its own words and goes to its own family; and every refusal really happens.

mod common;

use edgefl_core::{
    add_in_ring, add_skellam_noise, apply_masks, combine_many, combine_shares, hkdf_sha256,
    open_many, open_sealed, pack, quantize, reduce_to_ring, seal_many, split_secret, unpack,
    verify_many, AgreementKey, CancelFlag, CoreError, ErrorKind, Keystream, PoissonTable, Prg,
    QuantizeSettings, RandomWords, RingBits, Seed, Share, StageProblem, TILE_BYTES,
};

fn seed(byte: u8) -> Seed {
    Seed::from_bytes(&[byte; 32]).expect("32 bytes")
}

fn share(point: i64, bytes: &[u8]) -> Share<'_> {
    Share { point, bytes }
}

fn ring(bits: i64) -> RingBits {
    RingBits::new(bits).expect("8 to 32")
}

#[test]
#[allow(clippy::too_many_lines)] // a table
fn every_variant_is_reported_under_its_family_and_code() {
    let (found, expected, index) = (3, 4, 5);
    let (what, point, threshold, points) = ("the values", 7, 2, 1);
    let table = [
        (
            CoreError::RingBits { found: 3 },
            ErrorKind::Config,
            "E-RING-BITS",
        ),
        (
            CoreError::Length {
                what,
                expected,
                found,
            },
            ErrorKind::Config,
            "E-LENGTH",
        ),
        (
            CoreError::BatchLength {
                what,
                expected,
                found,
            },
            ErrorKind::Config,
            "E-BATCH-LENGTH",
        ),
        (
            CoreError::RingValue {
                index,
                ring_bits: 8,
            },
            ErrorKind::Config,
            "E-RING-VALUE",
        ),
        (
            CoreError::PackedLength { expected, found },
            ErrorKind::Wire,
            "E-PACKED-LENGTH",
        ),
        (
            CoreError::PackedPadding,
            ErrorKind::Wire,
            "E-PACKED-PADDING",
        ),
        (
            CoreError::UpdateNotFinite { index, count: 1 },
            ErrorKind::Privacy,
            "E-UPDATE-NOT-FINITE",
        ),
        (
            CoreError::UpdateRange { index },
            ErrorKind::Privacy,
            "E-UPDATE-RANGE",
        ),
        (
            CoreError::UpdateNorm { bound: 1.0 },
            ErrorKind::Privacy,
            "E-UPDATE-NORM",
        ),
        (
            CoreError::QuantizeScale { found: 0.0 },
            ErrorKind::Config,
            "E-QUANTIZE-SCALE",
        ),
        (
            CoreError::ClipNorm { found: 0.0 },
            ErrorKind::Config,
            "E-CLIP-NORM",
        ),
        (
            CoreError::RotationBlock { found: 3 },
            ErrorKind::Config,
            "E-ROTATION-BLOCK",
        ),
        (
            CoreError::Weight { found: 3, bound: 2 },
            ErrorKind::Config,
            "E-WEIGHT",
        ),
        (
            CoreError::WeightedNoise,
            ErrorKind::Privacy,
            "E-WEIGHTED-NOISE",
        ),
        (CoreError::SumSpoilt, ErrorKind::Config, "E-SUM-SPOILT"),
        (
            CoreError::NormBound { found: -1.0 },
            ErrorKind::Config,
            "E-NORM-BOUND",
        ),
        (
            CoreError::Attempts { found: 0 },
            ErrorKind::Config,
            "E-ATTEMPTS",
        ),
        (
            CoreError::NoiseVariance { found: -1.0 },
            ErrorKind::Privacy,
            "E-NOISE-VARIANCE",
        ),
        (
            CoreError::NoiseOverflow { index },
            ErrorKind::Privacy,
            "E-NOISE-OVERFLOW",
        ),
        (
            CoreError::ShareThreshold { threshold, points },
            ErrorKind::Share,
            "E-SHARE-THRESHOLD",
        ),
        (
            CoreError::SharePoint { point },
            ErrorKind::Share,
            "E-SHARE-POINT",
        ),
        (
            CoreError::ShareDuplicate { point },
            ErrorKind::Share,
            "E-SHARE-DUPLICATE",
        ),
        (
            CoreError::ShareLength { found },
            ErrorKind::Share,
            "E-SHARE-LENGTH",
        ),
        (
            CoreError::ShareRange { point },
            ErrorKind::Share,
            "E-SHARE-RANGE",
        ),
        (
            CoreError::TooFewShares { threshold, found },
            ErrorKind::Share,
            "E-SHARE-TOO-FEW",
        ),
        (CoreError::ShareSecret, ErrorKind::Share, "E-SHARE-SECRET"),
        (
            CoreError::PublicKeyLength { found },
            ErrorKind::RemoteProtocol,
            "E-PUBLIC-KEY",
        ),
        (
            CoreError::WeakPublicKey,
            ErrorKind::RemoteProtocol,
            "E-PUBLIC-KEY",
        ),
        (
            CoreError::PeerKey {
                index,
                size_bytes: 31,
            },
            ErrorKind::RemoteProtocol,
            "E-PUBLIC-KEY",
        ),
        (CoreError::Sealed, ErrorKind::RemoteProtocol, "E-SEALED"),
        (
            CoreError::PlaintextLength,
            ErrorKind::Config,
            "E-PLAINTEXT-LENGTH",
        ),
        (
            CoreError::SecretLength { found },
            ErrorKind::Config,
            "E-SECRET-LENGTH",
        ),
        (
            CoreError::StreamLength,
            ErrorKind::Config,
            "E-STREAM-LENGTH",
        ),
        (
            CoreError::Threads { found: 0 },
            ErrorKind::Config,
            "E-THREADS",
        ),
        (CoreError::Prg { found: 3 }, ErrorKind::Config, "E-PRG"),
        (
            CoreError::LaneWidth {
                ring_bits: 17,
                lane_bits: 16,
            },
            ErrorKind::Config,
            "E-LANE-WIDTH",
        ),
        (CoreError::Backend, ErrorKind::Environment, "E-BACKEND"),
        (CoreError::Cancelled, ErrorKind::Cancelled, "E-CANCELLED"),
        (
            CoreError::ThreadStart,
            ErrorKind::Environment,
            "E-THREAD-START",
        ),
        (
            CoreError::OsRandomness,
            ErrorKind::Environment,
            "E-OS-RANDOMNESS",
        ),
        (
            CoreError::Stage(StageProblem::Unknown),
            ErrorKind::Config,
            "E-STAGE-KEY",
        ),
        (
            CoreError::Stage(StageProblem::Incomplete { missing: 1 }),
            ErrorKind::Config,
            "E-STAGE-INCOMPLETE",
        ),
    ];
    for (error, kind, code) in table {
        let report = error.report();
        assert_eq!((report.kind, report.code), (kind, code), "{error:?}");
        assert!(
            !report.expected.is_empty() && !report.found.is_empty(),
            "{error:?}"
        );
        let line = format!(
            "{code}: expected {}; found {}",
            report.expected, report.found
        );
        assert_eq!(error.to_string(), line);
    }
}

#[test]
fn arguments_are_refused() {
    for found in [i64::MIN, -1, 0, 7, 33, i64::MAX] {
        assert_eq!(RingBits::new(found), Err(CoreError::RingBits { found }));
    }
    for found in [0, 65] {
        let error = apply_masks(&mut [0_u32], ring(8), &[], found, None);
        let found = i64::try_from(found).expect("small");
        assert_eq!(error, Err(CoreError::Threads { found }));
    }
    for found in [i64::MIN, 0, 3, 257, i64::MAX] {
        assert_eq!(Prg::from_id(found), Err(CoreError::Prg { found }));
    }
    let (ring_bits, lane_bits) = (17, 16);
    assert_eq!(
        apply_masks(&mut [0_u16], ring(17), &[], 1, None),
        Err(CoreError::LaneWidth {
            ring_bits,
            lane_bits
        })
    );
    let lengths = |what| {
        Err(CoreError::Length {
            what,
            expected: 2,
            found: 1,
        })
    };
    assert_eq!(
        reduce_to_ring(&[0, 0], &mut [0], ring(8)),
        lengths("the output")
    );
    assert_eq!(
        add_in_ring(&mut [0, 0], &[0], ring(8)),
        lengths("the values")
    );
    assert!(matches!(
        Seed::from_bytes(&[0; 31]),
        Err(CoreError::SecretLength { found: 31 })
    ));
    let long = hkdf_sha256(b"", b"", b"", &mut vec![0; 255 * 32 + 1]);
    assert!(matches!(long, Err(CoreError::Length { found: 8161, .. })));
}

#[test]
fn a_key_has_almost_two_to_the_32_blocks() {
    let mut last = Keystream::from_block(&seed(1), (1 << 32) - 2).expect("in range");
    assert_eq!(last.fill(&mut [0; 64]), Ok(()));
    assert_eq!(last.fill(&mut [0; 1]), Err(CoreError::StreamLength));
    for block in [(1 << 32) + 1, u64::MAX] {
        let refused = Keystream::from_block(&seed(1), block).err();
        assert_eq!(refused, Some(CoreError::StreamLength));
    }
}

#[test]
fn peers_bytes_are_refused() {
    let mut out = [0; 3];
    let short = CoreError::PackedLength {
        expected: 4,
        found: 3,
    };
    assert_eq!(unpack(&[0; 3], ring(9), &mut out), Err(short));
    let long = CoreError::PackedLength {
        expected: 4,
        found: 5,
    };
    assert_eq!(unpack(&[0; 5], ring(9), &mut out), Err(long));
    let padded = unpack(&[0, 0, 0, 0x08], ring(9), &mut out);
    assert_eq!(padded, Err(CoreError::PackedPadding));
    assert!(pack(&[255], ring(8)).is_ok() && pack(&[256], ring(8)).is_err());
    for length in [0, 23, 24, 39] {
        let sealed = vec![0; length];
        assert_eq!(open_sealed(&seed(1), &sealed, b""), Err(CoreError::Sealed));
    }
    let key = AgreementKey::from_seed(&seed(1));
    for found in [0, 31, 33] {
        let refused = key.agree(&vec![9; found], b"", b"").err();
        assert_eq!(refused, Some(CoreError::PublicKeyLength { found }));
    }
}

#[test]
fn a_refused_peer_of_a_batch_is_named() {
    let key = AgreementKey::from_seed(&seed(1));
    let good = AgreementKey::from_seed(&seed(2)).public_key();
    let infos = [b"info".as_slice(); 9];
    for threads in [1, 3] {
        for (bad, size_bytes) in [(vec![0; 32], 32), (vec![9; 31], 31), (vec![], 0)] {
            for index in 0..9 {
                let mut peers = [good.as_slice(); 9];
                peers[index] = &bad;
                peers[8] = &bad;
                let refused = key.agree_many(&peers, b"", &infos, threads).err();
                assert_eq!(refused, Some(CoreError::PeerKey { index, size_bytes }));
            }
        }
    }
    for found in [0, 65] {
        let refused = key.agree_many(&[&good], b"", &infos[..1], found).err();
        let found = i64::try_from(found).expect("small");
        assert_eq!(refused, Some(CoreError::Threads { found }));
    }
}

#[test]
fn lists_of_different_lengths_are_refused() {
    let (one, bytes) = (seed(1), b"".as_slice());
    let (keys, two, three) = ([&one, &one], [bytes; 2], [bytes; 3]);
    let refusal = |what| {
        Some(CoreError::BatchLength {
            what,
            expected: 2,
            found: 3,
        })
    };
    let key = AgreementKey::from_seed(&one);
    assert_eq!(key.agree_many(&two, b"", &three, 1).err(), refusal("info"));
    assert_eq!(
        seal_many(&keys, &three, &two, None).err(),
        refusal("plaintext")
    );
    assert_eq!(
        seal_many(&keys, &two, &three, None).err(),
        refusal("associated data")
    );
    assert_eq!(
        seal_many(&keys, &two, &two, Some(&[&one; 3])).err(),
        refusal("nonce seed")
    );
    assert_eq!(
        open_many(&keys, &three, &two).err(),
        refusal("sealed message")
    );
    assert_eq!(
        open_many(&keys, &two, &three).err(),
        refusal("associated data")
    );
    assert_eq!(verify_many(&two, &three, &two).err(), refusal("message"));
    assert_eq!(verify_many(&two, &two, &three).err(), refusal("signature"));
    let lists = [vec![[0; 40].as_slice(); 3]];
    assert_eq!(combine_many(&[1, 2], &lists, 1).err(), refusal("share"));
}

#[test]
fn sharing_is_refused() {
    let split =
        |threshold, points: &[i64]| split_secret(&seed(1), threshold, points, &seed(2)).err();
    for threshold in [-1, 0, 3] {
        let expected = CoreError::ShareThreshold {
            threshold,
            points: 2,
        };
        assert_eq!(split(threshold, &[1, 2]), Some(expected));
    }
    for point in [i64::MIN, -1, 0, 65_537, i64::MAX] {
        assert_eq!(split(1, &[1, point]), Some(CoreError::SharePoint { point }));
    }
    assert_eq!(
        split(2, &[4, 4]),
        Some(CoreError::ShareDuplicate { point: 4 })
    );
    assert!(split(1, &[1, 65_536]).is_none());
}

#[test]
fn combining_is_refused() {
    let good = [0_u8; 40];
    let refusal = |shares: &[Share<'_>], threshold| combine_shares(shares, threshold).err();
    let one = [share(1, good.as_slice())];
    let none = CoreError::ShareThreshold {
        threshold: 0,
        points: 1,
    };
    assert_eq!(refusal(&one, 0), Some(none));
    let few = CoreError::TooFewShares {
        threshold: 2,
        found: 1,
    };
    assert_eq!(refusal(&one, 2), Some(few));
    let point = CoreError::SharePoint { point: 0 };
    assert_eq!(refusal(&[share(0, &good)], 1), Some(point));
    let twice = [share(3, good.as_slice()), share(3, good.as_slice())];
    assert_eq!(
        refusal(&twice, 1),
        Some(CoreError::ShareDuplicate { point: 3 })
    );
    let length = CoreError::ShareLength { found: 39 };
    assert_eq!(refusal(&[share(1, &good[..39])], 1), Some(length));
    // The modulus itself, in the last limb of a share that is not even needed.
    let mut modulus = good;
    modulus[32..].copy_from_slice(&((1_u64 << 61) - 1).to_le_bytes());
    let range = Some(CoreError::ShareRange { point: 2 });
    assert_eq!(refusal(&[share(1, &good), share(2, &modulus)], 1), range);
    for (limb, bits) in [(0, 52), (3, 52), (4, 48)] {
        let mut wide = good;
        wide[limb * 8..limb * 8 + 8].copy_from_slice(&(1_u64 << bits).to_le_bytes());
        assert_eq!(refusal(&[share(1, &wide)], 1), Some(CoreError::ShareSecret));
    }
}

#[test]
fn updates_are_refused() {
    let run = |update: &[f32], scale, l2_squared_bound, max_attempts| {
        let settings = QuantizeSettings {
            scale,
            l2_squared_bound,
            max_attempts,
        };
        quantize(update, &mut vec![0; update.len()], settings, &seed(1)).err()
    };
    let values = [1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let not_finite = CoreError::UpdateNotFinite { index: 1, count: 3 };
    assert_eq!(run(&values, 1.0, 9.0, 1), Some(not_finite));
    let range = Some(CoreError::UpdateRange { index: 1 });
    assert_eq!(
        run(&[0.0, 1_125_899_906_842_624.0], 1.0, f64::INFINITY, 1),
        range
    );
    assert_eq!(run(&[0.0, f32::MAX], f64::MAX, f64::INFINITY, 1), range);
    assert_eq!(
        run(&[4.0], 1.0, 15.9, 1),
        Some(CoreError::UpdateNorm { bound: 15.9 })
    );
    assert_eq!(run(&[4.0], 1.0, 16.0, 1), None);
    for found in [0.0, -1.0, f64::INFINITY] {
        assert_eq!(
            run(&[1.0], found, 9.0, 1),
            Some(CoreError::QuantizeScale { found })
        );
    }
    assert!(matches!(
        run(&[1.0], f64::NAN, 9.0, 1),
        Some(CoreError::QuantizeScale { .. })
    ));
    assert_eq!(
        run(&[1.0], 1.0, -1.0, 1),
        Some(CoreError::NormBound { found: -1.0 })
    );
    assert!(matches!(
        run(&[1.0], 1.0, f64::NAN, 1),
        Some(CoreError::NormBound { .. })
    ));
    assert_eq!(
        run(&[1.0], 1.0, 9.0, 0),
        Some(CoreError::Attempts { found: 0 })
    );
    let settings = QuantizeSettings {
        scale: 1.0,
        l2_squared_bound: 1.0,
        max_attempts: 1,
    };
    let lengths = quantize(&[0.0], &mut [], settings, &seed(1));
    assert!(matches!(
        lengths,
        Err(CoreError::Length {
            expected: 1,
            found: 0,
            ..
        })
    ));
}

#[test]
fn noise_is_refused() {
    let run = |start: i64, variance| add_skellam_noise(&mut [start], variance, &seed(1)).err();
    for found in [-1.0, -f64::MIN_POSITIVE, f64::INFINITY, 137_438_953_473.0] {
        assert_eq!(run(0, found), Some(CoreError::NoiseVariance { found }));
    }
    assert!(matches!(
        run(0, f64::NAN),
        Some(CoreError::NoiseVariance { .. })
    ));
    assert_eq!(run(5, 0.0), None);
    let overflows = [i64::MIN, i64::MAX].map(|start| run(start, 1e6));
    assert!(overflows.contains(&Some(CoreError::NoiseOverflow { index: 0 })));
    assert!(PoissonTable::new(0).is_err() && PoissonTable::new((1 << 40) + 1).is_err());
}

/// The smallest variance is rounded up to one unit, and one unit is really drawn: of 2^21 draws
/// with lambda = 2^-16, 32 are expected; none has probability e^-32.
#[test]
fn the_smallest_noise_is_not_lost() {
    let table = PoissonTable::new(1).expect("one unit");
    let mut words = RandomWords::new(&seed(7));
    let sum: i64 = (0..1 << 21)
        .map(|_| table.draw(&mut words).expect("short"))
        .sum();
    assert!((8..=72).contains(&sum), "{sum}");
    let mut values = vec![0; 1 << 20];
    add_skellam_noise(&mut values, f64::MIN_POSITIVE, &seed(7)).expect("valid");
    assert!(values.iter().any(|value| *value != 0));
}

#[test]
fn a_cancelled_call_ends() {
    let flag = CancelFlag::new();
    let mut values = vec![0_u32; 3 * TILE_BYTES];
    let seeds = [seed(1)];
    let masks = common::masks(Prg::ChaCha20, &seeds, &[]);
    let mut run = || apply_masks(&mut values, ring(8), &masks, 2, Some(&flag));
    assert_eq!(run(), Ok(()));
    flag.clone().cancel();
    assert_eq!(run(), Err(CoreError::Cancelled));
}
