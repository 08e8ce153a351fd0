//! Vectors of version 1 of the wire format, read from tests/vectors/v1; the refused ones included.

mod common;

use edgefl_core::{
    combine_many, combine_shares, open_sealed, seal_with_nonce, split_secrets, AgreementKey,
    CoreError, Seed, Share,
};
use serde_json::Value;

use common::{cases, hex, unhex};

fn seed(case: &Value, field: &str) -> Seed {
    Seed::from_bytes(&unhex(&case[field])).expect("32 bytes")
}

fn list<T>(value: &Value, item: impl Fn(&Value) -> T) -> Vec<T> {
    let list = value.as_array().expect("a list");
    list.iter().map(item).collect()
}

fn points_of(case: &Value) -> (i64, Vec<i64>) {
    let integer = |value: &Value| value.as_i64().expect("an integer");
    (integer(&case["threshold"]), list(&case["points"], integer))
}

#[test]
fn shares_are_made_and_combined() {
    for case in cases("v1/shamir.json", "cases") {
        let (threshold, points) = points_of(&case);
        let secrets = list(&case["secrets"], unhex);
        let seeds: Vec<Seed> = secrets
            .iter()
            .map(|secret| Seed::from_bytes(secret).expect("32 bytes"))
            .collect();
        let seeds: Vec<&Seed> = seeds.iter().collect();
        let coefficients = seed(&case, "coefficient_seed");
        let made = split_secrets(&seeds, threshold, &points, &coefficients).expect("valid");
        let expected = list(&case["shares"], |shares| list(shares, unhex));
        let made: Vec<Vec<Vec<u8>>> = made
            .iter()
            .map(|shares| shares.iter().map(|share| share.to_vec()).collect())
            .collect();
        assert_eq!(made, expected);
        let views: Vec<Vec<&[u8]>> = expected
            .iter()
            .map(|shares| shares.iter().map(Vec::as_slice).collect())
            .collect();
        let found = combine_many(&points, &views, threshold).expect("valid");
        for (seed, secret) in found.into_iter().zip(secrets) {
            assert_eq!(seed.expect("a secret").export_bytes().as_slice(), secret);
        }
    }
}

#[test]
fn shares_that_must_not_combine_do_not() {
    for case in cases("v1/shamir.json", "refused") {
        let (threshold, points) = points_of(&case);
        let shares = list(&case["shares"], unhex);
        let held: Vec<Share<'_>> = points
            .iter()
            .zip(&shares)
            .map(|(point, bytes)| Share {
                point: *point,
                bytes,
            })
            .collect();
        let error = combine_shares(&held, threshold).expect_err("refused");
        assert_eq!(error.report().code, case["error"], "{}", case["why"]);
        let views = [shares.iter().map(Vec::as_slice).collect()];
        match combine_many(&points, &views, threshold) {
            Ok(found) => assert!(error == CoreError::ShareSecret && found[0].is_none()),
            Err(of_many) => assert_eq!(of_many, error),
        }
    }
}

#[test]
fn sealed_shares_are_made_and_opened() {
    for case in cases("v1/sealed_shares.json", "cases") {
        let info = unhex(&case["pair_info"]);
        for (own, peer) in [("owner", "holder"), ("holder", "owner")] {
            let key = AgreementKey::from_seed(&seed(&case, &format!("{own}_share_secret")));
            assert_eq!(hex(&key.public_key()), case[format!("{own}_share_key")]);
            let peer = unhex(&case[format!("{peer}_share_key")]);
            let pair_secret = key.agree(&peer, b"", &info).expect("valid");
            assert_eq!(hex(pair_secret.export_bytes()), case["pair_secret"]);
        }
        let context = unhex(&case["context"]);
        let key = seed(&case, "pair_secret").derive(&unhex(&case["session_id"]), &context);
        assert_eq!(hex(key.export_bytes()), case["seal_key"]);
        let sealed = unhex(&case["sealed"]);
        let shares = [
            unhex(&case["mask_key_share"]),
            unhex(&case["self_seed_share"]),
        ]
        .concat();
        let nonce = sealed.first_chunk().expect("24 bytes and more");
        assert_eq!(
            seal_with_nonce(&key, &shares, &context, nonce).as_ref(),
            Ok(&sealed)
        );
        assert_eq!(open_sealed(&key, &sealed, &context), Ok(shares));
    }
}

#[test]
fn sealed_shares_that_must_not_open_do_not() {
    for case in cases("v1/sealed_shares.json", "refused") {
        let (sealed, context) = (unhex(&case["sealed"]), unhex(&case["context"]));
        let opened = open_sealed(&seed(&case, "seal_key"), &sealed, &context);
        assert_eq!(opened, Err(CoreError::Sealed), "{}", case["why"]);
    }
}
