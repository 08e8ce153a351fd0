//! Two packed vectors for one sum: ring bits, length, then their bytes, half each. What is added is
//! what unpacks, and what is refused adds nothing.

#![no_main]

use edgefl_core::{unpack, RingBits, RingSum, CHECK_COORDINATES};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[bits, length], packed)) = data.split_first_chunk() else {
        return;
    };
    let Ok(ring) = RingBits::new(i64::from(bits)) else {
        return;
    };
    let Ok(mut sum) = RingSum::new(usize::from(length), ring) else {
        return;
    };
    let mut expected = vec![0_u32; sum.len()];
    let (first, second) = packed.split_at(packed.len() / 2);
    for packed in [first, second] {
        let mut values = vec![0; sum.len()];
        let unpacked = unpack(packed, ring, &mut values);
        assert_eq!(sum.add_packed(packed), unpacked);
        if unpacked.is_ok() {
            for (total, value) in expected.iter_mut().zip(values) {
                *total = total.wrapping_add(value) & ring.mask();
            }
        }
    }
    // The check coordinates are not handed out.
    expected.truncate(sum.len() - CHECK_COORDINATES);
    let mut found = Vec::new();
    sum.read(expected.len(), |value| found.push(value))
        .expect("no unmasking has failed");
    assert_eq!(found, expected);
});
