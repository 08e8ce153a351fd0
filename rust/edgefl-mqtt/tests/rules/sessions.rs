//! Sessions: kept, resumed, expired, ended.

use std::time::Duration;

use edgefl_mqtt::event::{DisconnectReason, Event};

use crate::harness::{packet, Connect, Lab, V3, V5};

#[test]
fn a_session_keeps_commands_for_a_client_that_sleeps() {
    for version in [V3, V5] {
        let lab = Lab::new();
        let lasting = Connect::lasting(version, 1_000);
        let mut device = lab.client(version, "edgefl-f-a", &lasting);
        assert!(!device.session_present);
        device.subscribe("efl/1/f/d/a/c", 1);
        lab.publish("efl/1/f/d/a/c", b"in flight", 1);
        assert!(!device.arrived().dup);
        device.disconnect();
        lab.publish("efl/1/f/d/a/c", b"while away", 1);
        lab.publish("efl/1/f/d/a/c", b"of qos 0", 0);
        let mut device = lab.client(version, "edgefl-f-a", &lasting);
        assert!(device.session_present);
        let first = device.arrived();
        assert_eq!(
            (first.payload.as_slice(), first.dup),
            (&b"in flight"[..], true)
        );
        let second = device.arrived();
        assert_eq!(
            (second.payload.as_slice(), second.dup),
            (&b"while away"[..], false)
        );
        device.acknowledge(first.id);
        device.acknowledge(second.id);
        device.expect_quiet();
        assert_eq!(lab.stat("queued_bytes"), 0);
    }
}

#[test]
fn a_clean_start_forgets() {
    for version in [V3, V5] {
        let lab = Lab::new();
        let mut device = lab.client(version, "edgefl-f-a", &Connect::lasting(version, 1_000));
        device.subscribe("efl/1/f/d/a/c", 1);
        device.disconnect();
        lab.publish("efl/1/f/d/a/c", b"x", 1);
        let mut device = lab.device(version, "a");
        assert!(!device.session_present);
        device.expect_quiet();
        device.disconnect();
        lab.wait_stat("sessions", 0);
        assert_eq!(lab.stat("queued_bytes"), 0);
        assert_eq!(lab.publish("efl/1/f/d/a/c", b"x", 1), 0);
    }
}

#[test]
fn a_session_ends_at_its_time() {
    let lab = Lab::new();
    let mut device = lab.client(V5, "edgefl-f-a", &Connect::lasting(V5, 1));
    device.subscribe("efl/1/f/agg", 1);
    device.disconnect();
    assert_eq!(lab.stat("sessions"), 1);
    lab.wait_stat("sessions", 0);
    assert_eq!(lab.publish("efl/1/f/agg", b"x", 1), 0);
}

#[test]
fn an_expiry_has_a_bound_which_mqtt_5_is_told() {
    let lab = Lab::with(|limits| limits.max_session_expiry_s = 1);
    let device = lab.client(V5, "edgefl-f-a", &Connect::lasting(V5, 5_000));
    assert!(device
        .properties
        .windows(5)
        .any(|found| found == [0x11, 0, 0, 0, 1]));
    device.disconnect();
    lab.client(V3, "edgefl-f-b", &Connect::lasting(V3, 0))
        .disconnect();
    assert_eq!(lab.stat("sessions"), 2);
    lab.wait_stat("sessions", 0);
}

#[test]
fn a_disconnect_may_change_the_expiry_but_not_from_nothing() {
    let lab = Lab::new();
    let mut device = lab.client(V5, "edgefl-f-a", &Connect::lasting(V5, 1_000));
    device.send(&packet(0xE0, &[0, 5, 0x11, 0, 0, 0, 0]));
    lab.wait_stat("sessions", 0);
    let mut device = lab.device(V5, "a");
    device.send(&packet(0xE0, &[0, 5, 0x11, 0, 0, 0, 9]));
    device.expect_end(0x82);
}

#[test]
fn silence_ends_a_connection() {
    let mut lab = Lab::new();
    for version in [V3, V5] {
        let connect = Connect {
            keep_alive_s: 1,
            ..Connect::default()
        };
        let mut device = lab.client(version, "edgefl-f-a", &connect);
        std::thread::sleep(Duration::from_millis(800));
        device.expect_quiet();
        device.expect_end(0x8D);
        let reason = lab.event(|event| match event {
            Event::Disconnected { reason, .. } => Some(*reason),
            _ => None,
        });
        assert_eq!(reason, DisconnectReason::KeepAlive);
    }
}

#[test]
fn a_client_without_keepalive_gets_one() {
    let lab = Lab::with(|limits| limits.max_keepalive_s = 300);
    for asked in [0, 4_000] {
        let connect = Connect {
            keep_alive_s: asked,
            ..Connect::default()
        };
        let device = lab.client(V5, "x", &connect);
        assert!(device
            .properties
            .windows(3)
            .any(|found| found == [0x13, 1, 0x2C]));
    }
}

#[test]
fn a_client_without_a_name_gets_one() {
    let lab = Lab::new();
    let device = lab.client(V5, "", &Connect::default());
    assert!(device
        .properties
        .windows(8)
        .any(|found| found == b"\x12\0\x06auto-"));
    lab.client(V3, "", &Connect::default()).expect_quiet();
    let mut nameless = lab.dial(V3);
    nameless.send(&Connect::lasting(V3, 0).packet(V3, ""));
    assert_eq!(nameless.expect(0x20), [0, 2]);
}

#[test]
fn closing_says_goodbye() {
    let lab = Lab::new();
    let mut new = lab.device(V5, "a");
    let mut old = lab.device(V3, "b");
    lab.endpoint.close();
    new.expect_end(0x8B);
    old.expect_end(0);
}
