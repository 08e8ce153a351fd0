//! The vectors of the self-test, and how to tell whether each holds.

use crate::backend::Backend;
use crate::error::CoreError;
use crate::mask::aes_128_ctr_keystream;
use crate::prg::Keystream;
use crate::secret::Seed;
use crate::{
    combine_shares, hkdf_sha256, open_sealed, seal_with_nonce, split_secret, verify, AgreementKey,
    Share, SigningKey,
};

/// Fields of a vector, decoded.
pub(super) type Fields = [Vec<u8>];

/// A published example: fields in hexadecimal, and how to tell whether they fit together.
pub(super) struct Vector {
    pub(super) name: &'static str,
    pub(super) fields: &'static [&'static str],
    pub(super) holds: fn(&Fields) -> bool,
}

/// Key, first counter block and output blocks; tried with every AES code.
pub(super) const AES_VECTORS: &[(&str, &[&str])] = &[
    (
        "AES-128, FIPS 197 C.1",
        &[
            "000102030405060708090a0b0c0d0e0f",
            "00112233445566778899aabbccddeeff",
            "69c4e0d86a7b0430d8cdb78070b4c55a",
        ],
    ),
    (
        // The output blocks: plaintext XOR ciphertext of the document.
        "AES-128-CTR, SP 800-38A F.5.1",
        &[
            "2b7e151628aed2a6abf7158809cf4f3c",
            "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
            concat!(
                "ec8cdf7398607cb0f2d21675ea9ea1e4",
                "362b7c3c6773516318a077d7fc5073ae",
                "6a2cc3787889374fbeb4c81b17ba6c44",
                "e89c399ff0f198c6d40a31db156cabfe",
            ),
        ],
    ),
];

pub(super) const VECTORS: &[Vector] = &[
    Vector {
        name: "ChaCha20, RFC 8439 A.1, test vector 3",
        fields: &[
            "0000000000000000000000000000000000000000000000000000000000000001",
            "00000001",
            concat!(
                "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a",
                "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
            ),
        ],
        holds: chacha20_holds,
    },
    Vector {
        name: "X25519, RFC 7748 5.2",
        fields: &[
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ],
        holds: agreement_holds,
    },
    Vector {
        name: "Ed25519, RFC 8032 7.1, test 2",
        fields: &[
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            concat!(
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da",
                "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
            ),
        ],
        holds: signature_holds,
    },
    Vector {
        name: "HKDF-SHA256, RFC 5869 A.1",
        fields: &[
            "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
            "000102030405060708090a0b0c",
            "f0f1f2f3f4f5f6f7f8f9",
            concat!(
                "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf",
                "34007208d5b887185865",
            ),
        ],
        holds: kdf_holds,
    },
    Vector {
        name: "XChaCha20-Poly1305, draft-irtf-cfrg-xchacha-03 A.3.1",
        fields: &[
            "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
            "404142434445464748494a4b4c4d4e4f5051525354555657",
            "50515253c0c1c2c3c4c5c6c7",
            concat!(
                "4c616469657320616e642047656e746c656d656e206f662074686520636c6173",
                "73206f66202739393a204966204920636f756c64206f6666657220796f75206f",
                "6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73",
                "637265656e20776f756c642062652069742e",
            ),
            concat!(
                "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb",
                "731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216cb96b72e1213b452",
                "2f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9",
                "21f9664c97637da9768812f615c68b13b52e",
            ),
            "c0875924c1c7987947deafd8780acf49",
        ],
        holds: sealing_holds,
    },
    Vector {
        name: "Shamir over GF(2^61-1), our own: 2 of 3",
        fields: &[
            "2a35404b56616c77828d98a3aeb9c4cfdae5f0fb06111c27323d48535e69747f",
            "646f7a85909ba6b1bcc7d2dde8f3fe09141f2a35404b56616c77828d98a3aeb9",
            concat!(
                "d145f05b3229100a2335f0c274db620fc60f910e0154521f",
                "f844632ded3a5516ac7ba998fd15a415",
            ),
            concat!(
                "7856a06c0ef11314d04208fdafccba1ed45a52421cb7981e",
                "827905e9b7a2a60c11a4f4c786ac470b",
            ),
            concat!(
                "1f67507deab8171e7e502037ebbd120ee2a51376371adf1d",
                "0caea7a4820af80276cc3ff70f43eb00",
            ),
        ],
        holds: sharing_holds,
    },
];

/// What must be refused, and how.
pub(super) type Refusal = (&'static str, &'static [&'static str], fn(&Fields) -> bool);

pub(super) const REFUSALS: &[Refusal] = &[
    (
        "X25519 refuses a public key of small order, RFC 7748 6.1",
        &["e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"],
        |fields| {
            AgreementKey::from_seed(&Seed::zero())
                .shared_secret(&fields[0])
                .is_err()
        },
    ),
    (
        "Ed25519 refuses an S that is not below the group order, RFC 8032 8.4",
        &[
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            concat!(
                "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155",
                "4c8c7872aa064e049dbb3013fbf29380d25bf5f0595bbe24655141438e7a101b",
            ),
        ],
        |fields| !verify(&fields[0], &fields[1], &fields[2]),
    ),
    (
        "Ed25519 refuses a public key of small order",
        &[
            "0100000000000000000000000000000000000000000000000000000000000000",
            "72",
            concat!(
                "0100000000000000000000000000000000000000000000000000000000000000",
                "0000000000000000000000000000000000000000000000000000000000000000",
            ),
        ],
        |fields| !verify(&fields[0], &fields[1], &fields[2]),
    ),
    (
        "Shamir refuses one share where two are needed",
        &["d145f05b3229100a2335f0c274db620fc60f910e0154521ff844632ded3a5516ac7ba998fd15a415"],
        |fields| {
            matches!(
                combined(&fields[..1], 0),
                Err(CoreError::TooFewShares { .. })
            )
        },
    ),
];

fn chacha20_holds(fields: &Fields) -> bool {
    let [key, block, expected] = fields else {
        return false;
    };
    let block = block
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    let mut found = vec![0; expected.len()];
    Seed::from_bytes(key)
        .and_then(|seed| Keystream::from_block(&seed, block)?.fill(&mut found))
        .is_ok_and(|()| found == *expected)
}

pub(super) fn aes_holds(fields: &Fields, backend: Backend) -> bool {
    let [key, counter, expected] = fields else {
        return false;
    };
    let (Ok(key), Ok(counter)) = (key.as_slice().try_into(), counter.as_slice().try_into()) else {
        return false;
    };
    aes_128_ctr_keystream(key, counter, backend, expected.len() / 16)
        .is_ok_and(|found| found == *expected)
}

fn agreement_holds(fields: &Fields) -> bool {
    let [scalar, public_key, expected] = fields else {
        return false;
    };
    Seed::from_bytes(scalar)
        .and_then(|seed| AgreementKey::from_seed(&seed).shared_secret(public_key))
        .is_ok_and(|found| found.export_bytes().as_slice() == expected)
}

fn signature_holds(fields: &Fields) -> bool {
    let [secret_key, public_key, message, signature] = fields else {
        return false;
    };
    Seed::from_bytes(secret_key).is_ok_and(|seed| {
        let key = SigningKey::from_seed(&seed);
        key.public_key().as_slice() == public_key
            && key.sign(message).as_slice() == signature
            && verify(public_key, message, signature)
    })
}

fn kdf_holds(fields: &Fields) -> bool {
    let [input, salt, info, expected] = fields else {
        return false;
    };
    let mut found = vec![0; expected.len()];
    hkdf_sha256(input, salt, info, &mut found).is_ok() && found == *expected
}

fn sealing_holds(fields: &Fields) -> bool {
    let [key, nonce, header, plaintext, ciphertext, tag] = fields else {
        return false;
    };
    let (Ok(key), Ok(nonce)) = (Seed::from_bytes(key), nonce.as_slice().try_into()) else {
        return false;
    };
    let sealed = [nonce as &[u8], ciphertext, tag].concat();
    seal_with_nonce(&key, plaintext, header, nonce).is_ok_and(|found| found == sealed)
        && open_sealed(&key, &sealed, header).is_ok_and(|found| found == *plaintext)
}

fn sharing_holds(fields: &Fields) -> bool {
    let [secret, coefficients, shares @ ..] = fields else {
        return false;
    };
    let (Ok(secret), Ok(coefficients)) = (Seed::from_bytes(secret), Seed::from_bytes(coefficients))
    else {
        return false;
    };
    let is_split = split_secret(&secret, 2, &[1, 2, 3], &coefficients)
        .is_ok_and(|found| found.iter().map(|share| share.as_slice()).eq(shares));
    let is_combined = (0..).zip(shares.windows(2)).all(|(before, pair)| {
        combined(pair, before).is_ok_and(|found| found.export_bytes() == secret.export_bytes())
    });
    is_split && is_combined
}

/// Combines shares at successive points, the first at `before` + 1, with a threshold of two.
fn combined(shares: &[Vec<u8>], before: i64) -> Result<Seed, CoreError> {
    let held: Vec<Share<'_>> = (before + 1..)
        .zip(shares)
        .map(|(point, bytes)| Share { point, bytes })
        .collect();
    combine_shares(&held, 2)
}
