//! The walk to a certificate's name: what it finds can stand in a topic and in a list of serials.

#![no_main]

use edgefl_mqtt::certificate::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(found) = read(data) else { return };
    assert!((1..=64).contains(&found.common_name.len()));
    assert!(!found.common_name.contains(['/', '+', '#', '$', '\0', ' ']));
    assert!(!found.serial.is_empty() && (found.serial == "0" || !found.serial.starts_with('0')));
});
