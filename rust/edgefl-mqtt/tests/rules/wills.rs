//! Wills: sent, not sent, delayed, cancelled.

use std::time::{Duration, Instant};

use crate::harness::{Connect, Lab, V3, V5};

const STATUS: &str = "efl/1/f/d/a/st";

fn with_will(delay_s: u8, expiry_s: u8) -> Connect {
    let delay = vec![0x18, 0, 0, 0, delay_s];
    Connect {
        clean: false,
        properties: vec![0x11, 0, 0, 0, expiry_s],
        will: Some((0x28, delay, STATUS.into(), b"offline".to_vec())),
        ..Connect::default()
    }
}

fn lab() -> Lab {
    let lab = Lab::new();
    lab.endpoint.subscribe(&["efl/1/f/d/+/st".into()]);
    lab
}

#[test]
fn a_broken_connection_sends_the_will_and_retains_it() {
    let mut lab = lab();
    let will = (0x28, Vec::new(), STATUS.to_owned(), b"offline".to_vec());
    let device = lab.client(
        V3,
        "edgefl-f-a",
        &Connect {
            will: Some(will),
            ..Connect::default()
        },
    );
    drop(device);
    assert_eq!(
        lab.message(),
        (None, STATUS.into(), b"offline".to_vec(), false)
    );
    let mut tool = lab.client(V5, "tool", &Connect::default());
    tool.subscribe("efl/#", 0);
    let stored = tool.arrived();
    assert_eq!(
        (stored.payload.as_slice(), stored.retain),
        (&b"offline"[..], true)
    );
}

#[test]
fn a_normal_disconnect_sends_none_unless_it_asks_for_it() {
    let mut lab = lab();
    lab.client(V5, "edgefl-f-a", &with_will(0, 9)).disconnect();
    let mut device = lab.client(V5, "edgefl-f-a", &with_will(0, 9));
    device.publish(STATUS, b"marker");
    assert_eq!(lab.message().2, b"marker", "no will before it");
    device.send(&[0xE0, 1, 4]);
    assert_eq!(lab.message().2, b"offline");
}

#[test]
fn a_delayed_will_waits_and_a_return_cancels_it() {
    let mut lab = lab();
    drop(lab.client(V5, "edgefl-f-a", &with_will(1, 9)));
    lab.wait_stat("connections", 0);
    let mut device = lab.client(V5, "edgefl-f-a", &with_will(1, 9));
    device.publish(STATUS, b"marker");
    assert_eq!(lab.message().2, b"marker");
    std::thread::sleep(Duration::from_millis(1_500));
    let lost = Instant::now();
    drop(device);
    assert_eq!(lab.message().2, b"offline");
    assert!(
        lost.elapsed() >= Duration::from_millis(950),
        "{:?}",
        lost.elapsed()
    );
}

#[test]
fn a_will_comes_no_later_than_its_session_ends() {
    let mut lab = lab();
    drop(lab.client(V5, "edgefl-f-a", &with_will(200, 1)));
    assert_eq!(lab.message().2, b"offline");
    lab.wait_stat("sessions", 0);
}
