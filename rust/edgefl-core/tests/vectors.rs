//! Standard vectors, read from tests/vectors; a flipped byte of any field must be noticed.

mod common;

use ed25519_dalek::Verifier;
use edgefl_core::{
    apply_masks, hkdf_sha256, open_sealed, seal_with_nonce, verify, AgreementKey, CoreError,
    Keystream, Prg, RingBits, Seed, SigningKey,
};
use serde_json::Value;

use common::{cases, hex, load, masks, unhex};

type Check = fn(&Value) -> bool;

fn bytes(case: &Value, field: &str) -> Vec<u8> {
    unhex(&case[field])
}

fn seed(case: &Value, field: &str) -> Seed {
    Seed::from_bytes(&bytes(case, field)).expect("32 bytes")
}

/// Flips the lowest bit of the middle byte of a field, or returns nothing for an empty field.
fn flipped(case: &Value, field: &str) -> Option<Value> {
    let mut content = bytes(case, field);
    let middle = content.len() / 2;
    *content.get_mut(middle)? ^= 1;
    let mut changed = case.clone();
    changed[field] = Value::String(hex(&content));
    Some(changed)
}

fn hold_and_notice_flips(name: &str, fields: &[&str], check: Check) {
    for (index, case) in cases(name, "cases").iter().enumerate() {
        assert!(check(case), "{name}, case {index}");
        for field in fields {
            if let Some(changed) = flipped(case, field) {
                assert!(!check(&changed), "{name}, case {index}: {field} flipped");
            }
        }
    }
}

fn keystream_holds(case: &Value) -> bool {
    let block = case["block"].as_u64().expect("block is a number");
    let mut found = [0; 64];
    let mut stream = Keystream::from_block(&seed(case, "key"), block).expect("in range");
    stream.fill(&mut found).expect("in range");
    found.as_slice() == bytes(case, "keystream")
}

/// The same bytes through the masks, which may come from another piece of code: the words behind
/// the block, 16 of them per block, and enough blocks after it to reach the wide code.
fn mask_holds(case: &Value) -> bool {
    let start = 16 * usize::try_from(case["block"].as_u64().expect("number")).expect("small");
    let mut words = vec![0_u32; start + 512];
    let ring = RingBits::new(32).expect("32 bits");
    let key = [seed(case, "key")];
    let masks = masks(Prg::ChaCha20, &key, &[]);
    apply_masks(&mut words, ring, &masks, 1, None).expect("in range");
    let found: Vec<u8> = words[start..start + 16]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    found == bytes(case, "keystream")
}

/// Alone, and in a batch, which may come from another piece of code.
fn agreement_holds(case: &Value) -> bool {
    let key = AgreementKey::from_seed(&seed(case, "scalar"));
    let (u, result) = (bytes(case, "u"), bytes(case, "result"));
    let expected = seed(case, "result").derive(b"salt", b"info");
    let batch = key.agree_many(&[u.as_slice(); 5], b"salt", &[b"info".as_slice(); 5], 1);
    key.shared_secret(&u)
        .is_ok_and(|shared| shared.export_bytes().as_slice() == result)
        && batch.is_ok_and(|seeds| {
            let is_expected = |seed: &Seed| seed.export_bytes() == expected.export_bytes();
            seeds.iter().all(is_expected)
        })
}

fn signature_holds(case: &Value) -> bool {
    let key = SigningKey::from_seed(&seed(case, "secret_key"));
    let (public_key, message) = (bytes(case, "public_key"), bytes(case, "message"));
    let signature = bytes(case, "signature");
    key.public_key().as_slice() == public_key
        && key.sign(&message).as_slice() == signature
        && verify(&public_key, &message, &signature)
}

fn verification_holds(case: &Value) -> bool {
    verify(
        &bytes(case, "public_key"),
        &bytes(case, "message"),
        &bytes(case, "signature"),
    )
}

/// What the group equation alone says; where it holds, strictness is what refuses.
fn lax_verification_holds(case: &Value) -> bool {
    let public_key: [u8; 32] = bytes(case, "public_key").try_into().expect("32 bytes");
    let signature: [u8; 64] = bytes(case, "signature").try_into().expect("64 bytes");
    let signature = ed25519_dalek::Signature::from_bytes(&signature);
    ed25519_dalek::VerifyingKey::from_bytes(&public_key)
        .is_ok_and(|key| key.verify(&bytes(case, "message"), &signature).is_ok())
}

fn hkdf_holds(case: &Value) -> bool {
    let expected = bytes(case, "output");
    let mut found = vec![0; expected.len()];
    let (input, salt) = (bytes(case, "input"), bytes(case, "salt"));
    hkdf_sha256(&input, &salt, &bytes(case, "info"), &mut found).expect("short output");
    found == expected
}

fn sealing_holds(case: &Value) -> bool {
    let nonce = bytes(case, "nonce").try_into().expect("24 bytes");
    let (plaintext, header) = (bytes(case, "plaintext"), bytes(case, "associated_data"));
    let key = seed(case, "key");
    let expected = [
        bytes(case, "nonce"),
        bytes(case, "ciphertext"),
        bytes(case, "tag"),
    ]
    .concat();
    seal_with_nonce(&key, &plaintext, &header, &nonce).is_ok_and(|sealed| sealed == expected)
        && open_sealed(&key, &expected, &header).is_ok_and(|opened| opened == plaintext)
}

#[test]
fn chacha20_of_rfc_8439() {
    let fields = ["key", "keystream"];
    hold_and_notice_flips("rfc8439_chacha20.json", &fields, keystream_holds);
    hold_and_notice_flips("rfc8439_chacha20.json", &fields, mask_holds);
}

#[test]
fn x25519_of_rfc_7748() {
    let fields = ["scalar", "u", "result"];
    hold_and_notice_flips("rfc7748_x25519.json", &fields, agreement_holds);
    for case in &cases("rfc7748_x25519.json", "public_keys") {
        let public_key = AgreementKey::from_seed(&seed(case, "scalar")).public_key();
        assert_eq!(public_key.as_slice(), bytes(case, "public_key"));
    }
}

fn iterate_x25519(steps: u32) {
    let iterated = load("rfc7748_x25519.json")["iterated"].clone();
    let (mut scalar, mut u) = (bytes(&iterated, "start"), bytes(&iterated, "start"));
    for step in 1..=steps {
        let key = AgreementKey::from_seed(&Seed::from_bytes(&scalar).expect("32 bytes"));
        let result = key.shared_secret(&u).expect("not of small order");
        u = scalar;
        scalar = result.export_bytes().to_vec();
        if let Some(expected) = iterated["after"].get(step.to_string()) {
            assert_eq!(&hex(&scalar), expected, "after {step} steps");
        }
    }
    assert!(iterated["after"].get(steps.to_string()).is_some());
}

#[test]
fn x25519_of_rfc_7748_iterated() {
    iterate_x25519(1000);
}

#[test]
#[ignore = "takes two minutes: cargo test --release -p edgefl-core -- --ignored"]
fn x25519_of_rfc_7748_iterated_a_million_times() {
    iterate_x25519(1_000_000);
}

#[test]
fn x25519_refuses_small_order() {
    let key = AgreementKey::from_seed(&Seed::from_bytes(&[0x42; 32]).expect("32 bytes"));
    let file = load("small_order_x25519.json");
    let points = file["public_keys"].as_array().expect("a list");
    assert_eq!(points.len(), 7);
    for point in points {
        let case = serde_json::json!({ "point": point });
        let mut weak = bytes(&case, "point");
        // The highest bit is ignored, so that each point has two forms more.
        for high_bit in [0, 0x80] {
            weak[31] = weak[31] & 0x7f | high_bit;
            assert!(key.agree(&weak, b"", b"").is_err(), "{point}");
            for index in 0..6 {
                let mut peers = [[9; 32].as_slice(); 6];
                peers[index] = &weak;
                let refused = key.agree_many(&peers, b"", &[b"".as_slice(); 6], 1).err();
                let size_bytes = 32;
                assert_eq!(refused, Some(CoreError::PeerKey { index, size_bytes }));
            }
        }
        let changed = flipped(&case, "point").expect("not empty");
        assert!(key.agree(&bytes(&changed, "point"), b"", b"").is_ok());
    }
}

#[test]
fn ed25519_of_rfc_8032() {
    let fields = ["secret_key", "public_key", "message", "signature"];
    hold_and_notice_flips("rfc8032_ed25519.json", &fields, signature_holds);
    let fields = ["public_key", "message", "signature"];
    hold_and_notice_flips("rfc8032_ed25519.json", &fields, verification_holds);
    for case in &cases("rfc8032_ed25519.json", "refused") {
        assert!(!verification_holds(case), "{}", case["why"]);
        assert_eq!(lax_verification_holds(case), case["lax"], "{}", case["why"]);
    }
}

#[test]
fn hkdf_of_rfc_5869() {
    let fields = ["input", "salt", "info", "output"];
    hold_and_notice_flips("rfc5869_hkdf_sha256.json", &fields, hkdf_holds);
}

#[test]
fn xchacha20_poly1305_of_the_draft() {
    let fields = [
        "key",
        "nonce",
        "associated_data",
        "plaintext",
        "ciphertext",
        "tag",
    ];
    hold_and_notice_flips("xchacha20_poly1305.json", &fields, sealing_holds);
}
