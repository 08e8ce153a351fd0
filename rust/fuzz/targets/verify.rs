//! Signatures: a public key, a signature, the message. What is verified strictly also satisfies the
//! plain equation; our own signature is verified, and not for another message.

#![no_main]

use ed25519_dalek::{Signature, Verifier, VerifyingKey};
use edgefl_core::{verify, verify_many, Seed, SigningKey};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (public_key, rest) = data.split_at(data.len().min(32));
    let (signature, message) = rest.split_at(rest.len().min(64));
    let is_right = verify(public_key, message, signature);
    let batch = verify_many(&[public_key; 2], &[message; 2], &[signature; 2]);
    assert_eq!(batch, Ok(vec![is_right; 2]));
    assert!(!is_right || satisfies_equation(public_key, message, signature));
    if let Ok(seed) = Seed::from_bytes(public_key) {
        let key = SigningKey::from_seed(&seed);
        let own = key.sign(message);
        assert!(verify(&key.public_key(), message, &own));
        assert!(!verify(&key.public_key(), &[message, b"x"].concat(), &own));
    }
});

fn satisfies_equation(public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let (Ok(public_key), Ok(signature)) = (public_key.try_into(), signature.try_into()) else {
        return false;
    };
    VerifyingKey::from_bytes(public_key).is_ok_and(|key| {
        key.verify(message, &Signature::from_bytes(signature))
            .is_ok()
    })
}
