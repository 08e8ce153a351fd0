//! Reads the vector files and their hexadecimal fields.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::Value;

/// Reads a file of tests/vectors.
pub(crate) fn load(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors")
        .join(name);
    let text = std::fs::read_to_string(&path).expect("vector file is readable");
    serde_json::from_str(&text).expect("vector file is JSON")
}

/// Returns one list of a file, which must not be empty.
pub(crate) fn cases(name: &str, list: &str) -> Vec<Value> {
    let cases = load(name)[list].as_array().expect("a list").clone();
    assert!(!cases.is_empty());
    cases
}

/// Reads a hexadecimal field.
pub(crate) fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("field is text");
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("field is hex"))
        .collect()
}

/// Writes bytes as a hexadecimal field holds them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}
