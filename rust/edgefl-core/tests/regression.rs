//! Our own outputs, kept in tests/vectors/regression_*.json so that they do not change unnoticed.

mod common;

use edgefl_core::{
    add_skellam_noise, apply_masks, check_coordinates, combine_shares, open_sealed, pack, quantize,
    seal, split_secret, unpack, AgreementKey, Lane, PoissonTable, Prg, QuantizeSettings, RingBits,
    Seed, Share, SigningKey,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use common::{cases, hex, masks as masks_of, unhex};

fn seed(text: &Value) -> Seed {
    Seed::from_bytes(&unhex(text)).expect("32 bytes")
}

fn seeds(list: &Value) -> Vec<Seed> {
    list.as_array().expect("a list").iter().map(seed).collect()
}

fn integer(value: &Value) -> i64 {
    value.as_i64().expect("an integer")
}

fn integers(list: &Value) -> Vec<i64> {
    list.as_array()
        .expect("a list")
        .iter()
        .map(integer)
        .collect()
}

fn words(list: &Value) -> Vec<u32> {
    let word = |value: i64| u32::try_from(value).expect("a 32-bit word");
    integers(list).into_iter().map(word).collect()
}

fn ring(case: &Value) -> RingBits {
    RingBits::new(integer(&case["ring_bits"])).expect("8 to 32")
}

#[test]
fn masks() {
    for case in cases("regression_masks.json", "cases") {
        for threads in [1, 3] {
            let bytes = match integer(&case["lane_bits"]) {
                16 => masked(&case, threads, u16::to_le_bytes),
                _ => masked(&case, threads, u32::to_le_bytes),
            };
            assert_eq!(hex(&Sha256::digest(bytes)), case["sha256"]);
        }
    }
}

fn masked<L: Lane, const BYTES: usize>(
    case: &Value,
    threads: usize,
    to_bytes: fn(L) -> [u8; BYTES],
) -> Vec<u8> {
    let length = u32::try_from(integer(&case["length"])).expect("small");
    let mut lanes: Vec<L> = (0..length)
        .map(|i| L::from_keystream(&i.wrapping_mul(2_654_435_761).to_le_bytes()))
        .collect();
    let prg = Prg::from_id(integer(&case["prg"])).expect("known");
    let (add, subtract) = (seeds(&case["add"]), seeds(&case["subtract"]));
    let masks = masks_of(prg, &add, &subtract);
    apply_masks(&mut lanes, ring(case), &masks, threads, None).expect("valid");
    lanes.into_iter().flat_map(to_bytes).collect()
}

#[test]
fn shares() {
    for case in cases("regression_shares.json", "cases") {
        let (threshold, points) = (integer(&case["threshold"]), integers(&case["points"]));
        let coefficients = seed(&case["coefficient_seed"]);
        let shares =
            split_secret(&seed(&case["secret"]), threshold, &points, &coefficients).expect("valid");
        let expected = case["shares"].as_array().expect("a list");
        assert_eq!(shares.len(), expected.len());
        for (share, text) in shares.iter().zip(expected) {
            assert_eq!(&hex(share.as_slice()), text);
        }
        let held: Vec<Share<'_>> = points
            .iter()
            .zip(&shares)
            .map(|(point, bytes)| Share {
                point: *point,
                bytes: bytes.as_slice(),
            })
            .collect();
        let secret = combine_shares(&held, threshold).expect("valid");
        assert_eq!(hex(secret.export_bytes()), case["secret"]);
    }
}

#[test]
fn key_schedule() {
    for case in cases("regression_key_schedule.json", "cases") {
        let (own, peer) = (seed(&case["seed"]), seed(&case["peer_seed"]));
        let (salt, info) = (unhex(&case["salt"]), unhex(&case["info"]));
        assert_eq!(
            hex(own.derive(&salt, &info).export_bytes()),
            case["derived"]
        );
        assert_eq!(hex(&own.commitment(&info)), case["commitment"]);
        let agreement = AgreementKey::from_seed(&own);
        let peer = AgreementKey::from_seed(&peer);
        assert_eq!(hex(&agreement.public_key()), case["agreement_public_key"]);
        for (key, other) in [(&agreement, &peer), (&peer, &agreement)] {
            let agreed = key.agree(&other.public_key(), &salt, &info).expect("valid");
            assert_eq!(hex(agreed.export_bytes()), case["agreed"]);
        }
        let signing = SigningKey::from_seed(&own);
        assert_eq!(hex(&signing.public_key()), case["signing_public_key"]);
        let message = unhex(&case["message"]);
        assert_eq!(hex(&signing.sign(&message)), case["signature"]);
        let (header, nonce_seed) = (unhex(&case["associated_data"]), seed(&case["nonce_seed"]));
        let sealed = seal(&own, &message, &header, Some(&nonce_seed)).expect("valid");
        assert_eq!(hex(&sealed), case["sealed"]);
        assert_eq!(open_sealed(&own, &sealed, &header).expect("opens"), message);
    }
}

#[test]
fn packing() {
    for case in cases("regression_pack.json", "cases") {
        let values = words(&case["values"]);
        let packed = pack(&values, ring(&case)).expect("valid");
        assert_eq!(hex(&packed), case["packed"]);
        let mut unpacked = vec![0; values.len()];
        unpack(&packed, ring(&case), &mut unpacked).expect("valid");
        assert_eq!(unpacked, values);
    }
}

#[test]
fn checks() {
    for case in cases("regression_check_coordinates.json", "cases") {
        let session_id = unhex(&case["session_id"]).try_into().expect("32 bytes");
        let found = check_coordinates(&words(&case["values"]), ring(&case), &session_id);
        assert_eq!(
            found.expect("valid").as_slice(),
            words(&case["check_coordinates"])
        );
    }
}

#[test]
fn rounding() {
    for case in cases("regression_rounding.json", "cases") {
        #[allow(clippy::cast_possible_truncation)] // written from 32-bit floats
        let update: Vec<f32> = case["update"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|value| value.as_f64().expect("a number") as f32)
            .collect();
        let settings = QuantizeSettings {
            scale: case["scale"].as_f64().expect("a number"),
            l2_squared_bound: case["l2_squared_bound"].as_f64().expect("a number"),
            max_attempts: u32::try_from(integer(&case["max_attempts"])).expect("small"),
        };
        let mut out = vec![0; update.len()];
        let attempts = quantize(&update, &mut out, settings, &seed(&case["rounding_seed"]));
        assert_eq!(Some(attempts.expect("valid")), case["attempts"].as_u64());
        assert_eq!(out, integers(&case["values"]));
    }
}

#[test]
fn noise() {
    for case in cases("regression_noise.json", "cases") {
        let expected = integers(&case["values"]);
        let mut values = vec![0; expected.len()];
        let variance = case["variance"].as_f64().expect("a number");
        add_skellam_noise(&mut values, variance, &seed(&case["noise_seed"])).expect("valid");
        assert_eq!(values, expected, "variance {variance}");
    }
}

#[test]
fn noise_tables() {
    for case in cases("regression_noise.json", "tables") {
        let table = PoissonTable::new(case["lambda_units"].as_u64().expect("u64")).expect("valid");
        let sums = table.cumulative();
        assert_eq!(table.first(), integer(&case["first"]));
        assert_eq!(Some(sums.len() as u64), case["entries"].as_u64());
        assert_eq!(sums[sums.len() - 1].to_string(), case["total"]);
        for (value, weight) in case["weights"].as_object().expect("a map") {
            let value: i64 = value.parse().expect("an integer");
            let index = usize::try_from(value - table.first()).expect("not below the first");
            let before = if index == 0 { 0 } else { sums[index - 1] };
            assert_eq!(&(sums[index] - before).to_string(), weight, "value {value}");
        }
    }
}
