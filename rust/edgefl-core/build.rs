//! Asks the compiler's version, for vector instructions that became stable after our oldest Rust.

use std::env;
use std::process::Command;

/// The first Rust with stable intrinsics for AES on 256-bit registers.
const VAES_SINCE: u32 = 89;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(has_vaes_intrinsics)");
    // A version that cannot be read counts as old: the code is then slower, never wrong.
    if minor_version().is_some_and(|minor| minor >= VAES_SINCE) {
        println!("cargo::rustc-cfg=has_vaes_intrinsics");
    }
}

/// Reads 89 out of `rustc 1.89.0 (...)`.
fn minor_version() -> Option<u32> {
    let output = Command::new(env::var_os("RUSTC")?)
        .arg("--version")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut numbers = text.split(' ').nth(1)?.split('.');
    (numbers.next()? == "1").then_some(())?;
    numbers.next()?.parse().ok()
}
