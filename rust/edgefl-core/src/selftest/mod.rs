//! Runs the standards' vectors and compares all mask code with the portable one, on this machine.
//!
//! For a compiler, processor or build that breaks the arithmetic: what the tests check where it was
//! built, this checks where it runs. Every vector is tried twice, as published and with one bit
//! flipped in each of its fields in turn, which must be noticed.

mod vectors;

use vectors::{aes_holds, Fields, AES_VECTORS, REFUSALS, VECTORS};

use crate::backend::{Backend, Sign};
use crate::error::CoreError;
use crate::mask::{Mask, MaskExpander, TILE_BYTES};
use crate::prg::Prg;
use crate::ring::Lane;
use crate::secret::Seed;

/// How one check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// What was checked.
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
}

/// Runs everything. Takes some milliseconds.
pub fn self_test() -> Vec<CheckResult> {
    let mut results = Vec::new();
    for vector in VECTORS {
        push_both(&mut results, vector.name, vector.fields, &vector.holds);
    }
    for backend in Backend::available(Prg::Aes128Ctr) {
        for (name, fields) in AES_VECTORS {
            let name = format!("{name}, {}", backend.name());
            let holds = |fields: &Fields| aes_holds(fields, backend);
            push_both(&mut results, &name, fields, &holds);
        }
    }
    for (name, fields, is_refused) in REFUSALS {
        results.push(CheckResult {
            name: (*name).to_owned(),
            passed: is_refused(&decoded(fields)),
        });
    }
    results.extend(backends_agree());
    results
}

fn push_both(
    results: &mut Vec<CheckResult>,
    name: &str,
    fields: &[&str],
    holds: &dyn Fn(&Fields) -> bool,
) {
    let fields = decoded(fields);
    results.push(CheckResult {
        name: name.to_owned(),
        passed: holds(&fields),
    });
    results.push(CheckResult {
        name: format!("{name}, with a bit flipped, is noticed"),
        passed: (0..fields.len()).all(|index| !holds(&flipped(&fields, index))),
    });
}

/// Flips the lowest bit of the middle byte of a field.
fn flipped(fields: &Fields, index: usize) -> Vec<Vec<u8>> {
    let mut changed = fields.to_vec();
    let middle = changed[index].len() / 2;
    if let Some(byte) = changed[index].get_mut(middle) {
        *byte ^= 1;
    }
    changed
}

fn decoded(fields: &[&str]) -> Vec<Vec<u8>> {
    fields.iter().map(|field| from_hex(field)).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    digits
        .chunks_exact(2)
        .filter_map(|pair| u8::try_from(16 * pair[0] + pair[1]).ok())
        .collect()
}

fn backends_agree() -> Vec<CheckResult> {
    let mut results = Vec::new();
    for prg in Prg::ALL {
        for backend in Backend::available(prg) {
            for (lane_bits, agrees) in [
                (u16::BITS, agrees::<u16>(prg, backend)),
                (u32::BITS, agrees::<u32>(prg, backend)),
            ] {
                let (prg, backend) = (prg.name(), backend.name());
                results.push(CheckResult {
                    name: format!("{prg} masks, {backend}, {lane_bits}-bit lanes, as portable"),
                    passed: agrees.unwrap_or(false),
                });
            }
        }
    }
    results
}

/// Compares short runs at odd starts, and one of more than a tile, with both signs.
fn agrees<L: Lane>(prg: Prg, backend: Backend) -> Result<bool, CoreError> {
    let (added, taken) = (Seed::from_bytes(&[1; 32])?, Seed::from_bytes(&[2; 32])?);
    let masks = [(&added, Sign::Add), (&taken, Sign::Subtract)].map(|(seed, sign)| Mask {
        seed,
        prg,
        sign,
    });
    let expander = MaskExpander::with_backend(&masks, backend)?;
    let portable = MaskExpander::with_backend(&masks, Backend::Portable)?;
    for (first, length) in [
        (0, TILE_BYTES + 3),
        (1, 0),
        (0, 1),
        (3, 61),
        (509, 770),
        (65_535, 300),
    ] {
        let mut found = vec![L::default(); length];
        let mut expected = found.clone();
        expander.add_to_tile(&mut found, first)?;
        portable.add_to_tile(&mut expected, first)?;
        if found != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::{decoded, push_both, VECTORS};

    #[test]
    fn a_wrong_vector_fails() {
        let mut results = Vec::new();
        for vector in VECTORS {
            let mut fields = vector.fields.to_vec();
            // Another vector's bytes in place of the last field.
            let last = fields.len() - 1;
            fields[last] = "000102030405060708090a0b0c0d0e0f";
            push_both(&mut results, vector.name, &fields, &vector.holds);
        }
        assert!(results.iter().step_by(2).all(|result| !result.passed));
    }

    /// A check that looks at nothing passes as published, and is found out by the flipped bits.
    #[test]
    fn a_check_that_cannot_fail_fails() {
        let mut results = Vec::new();
        push_both(&mut results, "nothing", &["00"], &|_| true);
        assert_eq!([true, false], [results[0].passed, results[1].passed]);
    }

    #[test]
    fn fields_are_whole_bytes() {
        for vector in VECTORS {
            for (text, bytes) in vector.fields.iter().zip(decoded(vector.fields)) {
                assert_eq!(text.len(), 2 * bytes.len(), "{}", vector.name);
            }
        }
    }
}
