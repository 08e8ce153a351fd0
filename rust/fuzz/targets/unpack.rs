//! A packed vector: ring bits, count, then the packed bytes. What unpacks has one form only.

#![no_main]

use edgefl_core::{pack, unpack, CoreError, RingBits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[bits, count], packed)) = data.split_first_chunk() else {
        return;
    };
    let Ok(ring) = RingBits::new(i64::from(bits)) else {
        assert!(!(8..=32).contains(&bits));
        return;
    };
    let mut values = vec![0; usize::from(count)];
    match unpack(packed, ring, &mut values) {
        Ok(()) => assert_eq!(pack(&values, ring).as_deref(), Ok(packed)),
        Err(CoreError::PackedLength { expected, found }) => assert_ne!(expected, found),
        Err(error) => assert_eq!(error, CoreError::PackedPadding),
    }
});
