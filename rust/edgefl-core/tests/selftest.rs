//! The self-test passes here, covers every primitive, and tells its checks apart by name.

use std::collections::HashSet;

use edgefl_core::{self_test, Backend, Prg};

#[test]
fn everything_holds_on_this_machine() {
    let results = self_test();
    for result in &results {
        assert!(result.passed, "{}", result.name);
    }
    let names: HashSet<&str> = results.iter().map(|result| result.name.as_str()).collect();
    assert_eq!(names.len(), results.len());
    for primitive in [
        "ChaCha20,",
        "AES-128,",
        "X25519,",
        "Ed25519,",
        "HKDF",
        "XChaCha20",
        "Shamir",
    ] {
        assert!(
            names.iter().any(|name| name.starts_with(primitive)),
            "{primitive}"
        );
    }
    for prg in Prg::ALL {
        for backend in Backend::available(prg) {
            let part = format!("{} masks, {}", prg.name(), backend.name());
            assert_eq!(
                names.iter().filter(|name| name.starts_with(&part)).count(),
                2
            );
        }
    }
}
