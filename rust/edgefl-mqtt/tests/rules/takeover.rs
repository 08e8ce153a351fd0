//! One identity, two connections.

use std::time::Duration;

use edgefl_mqtt::event::Event;

use crate::harness::{Connect, Lab, V3, V5};

#[test]
fn the_second_connection_takes_over_and_both_are_named() {
    for version in [V3, V5] {
        let mut lab = Lab::new();
        let lasting = Connect::lasting(version, 100);
        let mut first = lab.client(version, "edgefl-f-a", &lasting);
        let mut second = lab.client(version, "edgefl-f-a", &lasting);
        assert!(second.session_present);
        first.expect_end(0x8E);
        let (old, new) = lab.event(|event| match event {
            Event::TakenOver {
                old_address,
                new_address,
                ..
            } => Some((*old_address, *new_address)),
            _ => None,
        });
        assert_eq!(old, first.stream.local_addr().expect("an address"));
        assert_eq!(new, second.stream.local_addr().expect("an address"));
        second.expect_quiet();
    }
}

#[test]
fn two_living_owners_are_stopped_and_named() {
    let mut lab = Lab::new();
    let mut owner = lab.device(V5, "a");
    for _ in 0..3 {
        let next = lab.device(V5, "a");
        owner.expect_end(0x8E);
        // Its peer is alive: it answers the end of the stream with its own.
        drop(owner);
        owner = next;
        std::thread::sleep(Duration::from_millis(50));
    }
    for (version, code) in [(V5, 0x85), (V3, 2)] {
        let mut intruder = lab.dial(version);
        intruder.send(&Connect::default().packet(version, "edgefl-f-a"));
        assert_eq!(intruder.expect(0x20)[1], code);
        let detail = lab.event(|event| match event {
            Event::Refused { detail, .. } => Some(detail.clone()),
            _ => None,
        });
        let kept = owner.stream.local_addr().expect("an address").to_string();
        let refused = intruder
            .stream
            .local_addr()
            .expect("an address")
            .to_string();
        assert!(
            detail.contains(&kept) && detail.contains(&refused),
            "{detail}"
        );
    }
    owner.expect_quiet();
    drop(owner);
    lab.wait_stat("connections", 0);
    lab.device(V5, "a").expect_quiet();
}

#[test]
fn a_client_that_loses_its_connection_is_no_second_owner() {
    let lab = Lab::new();
    let mut dead = Vec::new();
    for _ in 0..6 {
        // Kept open and never read from, as a connection whose peer has vanished.
        dead.push(lab.device(V5, "a"));
    }
    dead.last_mut().expect("one").expect_quiet();
}
