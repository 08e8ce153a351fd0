//! Shares: threshold, then per share a point (4 bytes LE), a length and the bytes.
//!
//! Combining one list and many must agree, and a secret that comes out must be what every other
//! choice of the same shares gives, once they were split anew.

#![no_main]

use edgefl_core::{combine_many, combine_shares, split_secret, CoreError, Seed, Share};
use libfuzzer_sys::fuzz_target;

fn shares_of(mut data: &[u8]) -> Vec<Share<'_>> {
    let mut shares = Vec::new();
    while let Some((&[p0, p1, p2, p3, length], rest)) = data.split_first_chunk() {
        let (bytes, rest) = rest.split_at(usize::from(length).min(rest.len()));
        let point = i64::from(i32::from_le_bytes([p0, p1, p2, p3]));
        shares.push(Share { point, bytes });
        data = rest;
    }
    shares
}

fuzz_target!(|data: &[u8]| {
    let Some((threshold, data)) = data.split_first() else {
        return;
    };
    let threshold = i64::from(i8::from_le_bytes([*threshold]));
    let shares = shares_of(data);
    let points: Vec<i64> = shares.iter().map(|share| share.point).collect();
    let list: Vec<&[u8]> = shares.iter().map(|share| share.bytes).collect();
    let many = combine_many(&points, &[list.clone(), list], threshold);
    match combine_shares(&shares, threshold) {
        Ok(secret) => {
            let found = many.expect("what one combines, many combine");
            for other in found {
                let other = other.expect("a secret");
                assert_eq!(other.export_bytes(), secret.export_bytes());
            }
            split_again(&secret, threshold, &points);
        }
        Err(CoreError::ShareSecret) => {
            let found = many.expect("only the secret is out of range");
            assert!(found.iter().all(Option::is_none));
        }
        Err(error) => assert_eq!(many.err(), Some(error)),
    }
});

fn split_again(secret: &Seed, threshold: i64, points: &[i64]) {
    let made = split_secret(secret, threshold, points, secret).expect("valid points");
    let held: Vec<Share<'_>> = points
        .iter()
        .zip(&made)
        .map(|(point, bytes)| Share {
            point: *point,
            bytes: bytes.as_slice(),
        })
        .rev()
        .collect();
    let found = combine_shares(&held, threshold).expect("our own shares");
    assert_eq!(found.export_bytes(), secret.export_bytes());
}
