//! Public keys: the scalar, then keys of 32 bytes and a rest. A batch says what single calls say,
//! which run other code.

#![no_main]

use edgefl_core::{AgreementKey, CoreError, Seed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((scalar, keys)) = data.split_first_chunk::<32>() else {
        return;
    };
    let key = AgreementKey::from_seed(&Seed::from_bytes(scalar).expect("32 bytes"));
    let peers: Vec<&[u8]> = keys.chunks(32).take(9).collect();
    let infos = vec![b"info".as_slice(); peers.len()];
    let singles: Vec<Result<Seed, CoreError>> = peers
        .iter()
        .map(|peer| key.agree(peer, b"salt", b"info"))
        .collect();
    let refused = singles.iter().position(Result::is_err);
    match key.agree_many(&peers, b"salt", &infos, 1) {
        Ok(batch) => {
            for (found, single) in batch.iter().zip(singles) {
                let expected = single.expect("nothing was refused");
                assert_eq!(found.export_bytes(), expected.export_bytes());
            }
        }
        Err(CoreError::PeerKey { index, size_bytes }) => {
            assert_eq!(Some(index), refused);
            assert_eq!(size_bytes, peers[index].len());
        }
        Err(error) => panic!("unexpected: {error}"),
    }
});
