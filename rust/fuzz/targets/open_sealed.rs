//! A sealed message: length of the header, the header, the message. Nobody forges one; ours open,
//! and no longer after any change.

#![no_main]

use edgefl_core::{open_many, open_sealed, seal, CoreError, Seed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((length, data)) = data.split_first() else {
        return;
    };
    let (header, body) = data.split_at(usize::from(*length).min(data.len()));
    let key = Seed::from_bytes(&[7; 32]).expect("32 bytes");
    assert_eq!(open_sealed(&key, body, header), Err(CoreError::Sealed));
    let mut sealed = seal(&key, body, header, Some(&key)).expect("short");
    let opened = open_many(&[&key, &key], &[&sealed, body], &[header; 2]).expect("lists of two");
    let opened: Vec<Option<&[u8]>> = opened
        .iter()
        .map(|message| message.as_ref().map(|bytes| bytes.as_slice()))
        .collect();
    assert_eq!(opened, [Some(body), None]);
    let index = usize::from(*length) % sealed.len();
    sealed[index] ^= 1 << (length % 8);
    assert_eq!(open_sealed(&key, &sealed, header), Err(CoreError::Sealed));
});
