//! Reads the vector files and their hexadecimal fields; makes masks.

#![allow(dead_code)] // not every test file uses all of it

use std::fmt::Write;
use std::path::PathBuf;

use edgefl_core::{Mask, Prg, Seed, Sign};
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

/// Makes masks of one generator: some added, some taken off.
pub(crate) fn masks<'a>(prg: Prg, add: &'a [Seed], subtract: &'a [Seed]) -> Vec<Mask<'a>> {
    let signed = |sign| move |seed| Mask { seed, prg, sign };
    let add = add.iter().map(signed(Sign::Add));
    add.chain(subtract.iter().map(signed(Sign::Subtract)))
        .collect()
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
