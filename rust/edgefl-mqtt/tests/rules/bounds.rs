//! Nobody costs more than a bounded amount.

use std::io::{Read, Write};
use std::time::Duration;

use edgefl_mqtt::event::{DisconnectReason, Event};
use edgefl_mqtt::DropReason;

use crate::harness::{packet, text, Connect, Lab, V3, V5};

#[test]
fn a_large_packet_is_refused_before_it_arrives() {
    let lab = Lab::with(|limits| limits.max_packet_bytes = 10_000);
    for version in [V3, V5] {
        let mut device = lab.device(version, "a");
        device.send(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F]);
        device.expect_end(0x95);
    }
    let device = lab.device(V5, "a");
    let announced = [&[0x27][..], &10_000u32.to_be_bytes()].concat();
    assert!(device.properties.windows(5).any(|found| found == announced));
}

#[test]
fn a_connect_is_small_and_in_time() {
    let mut lab = Lab::with(|limits| limits.connect_time = Duration::from_millis(200));
    let mut large = lab.dial(V5);
    large.send(&[0x10, 0xFF, 0x7F]);
    assert!(large.read().is_err());
    let mut silent = lab.dial(V5);
    assert!(silent.read().is_err());
    let detail = lab.event(|event| match event {
        Event::Refused { detail, .. } => Some(detail.clone()),
        _ => None,
    });
    assert_eq!(detail, "no CONNECT in time");
    let mut slow = lab.dial(V5);
    let connect = Connect::default().packet(V5, "x");
    for byte in &connect[..connect.len() - 1] {
        if slow.stream.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    assert!(slow.read().is_err());
    lab.wait_stat("connections", 0);
}

#[test]
fn connections_have_a_bound() {
    let lab = Lab::with(|limits| limits.max_connections = 3);
    let mut held: Vec<_> = (0..3)
        .map(|number| lab.device(V5, &format!("d{number}")))
        .collect();
    let mut more = lab.dial(V5);
    // Closing it unread may reset it.
    let _ = more.stream.write_all(&Connect::default().packet(V5, "x"));
    assert!(more.read().is_err());
    held.pop();
    lab.wait_stat("connections", 2);
    lab.device(V5, "d9").expect_quiet();
    assert_eq!(lab.stat("turned_away"), 1);
}

#[test]
fn one_address_cannot_open_connections_without_end() {
    let lab = Lab::with(|limits| limits.handshakes_per_peer_per_s = 1);
    for _ in 0..20 {
        let _ = lab.dial(V5);
    }
    lab.wait_stat("accepted", 20);
    assert!(lab.stat("turned_away") >= 14, "{}", lab.stat("turned_away"));
}

#[test]
fn sessions_have_a_bound() {
    let lab = Lab::with(|limits| limits.max_sessions = 2);
    for number in 0..2 {
        lab.client(V5, &format!("s{number}"), &Connect::lasting(V5, 100))
            .disconnect();
    }
    let mut more = lab.dial(V5);
    more.send(&Connect::default().packet(V5, "s3"));
    assert_eq!(more.expect(0x20)[1], 0x97);
    lab.client(V5, "s0", &Connect::lasting(V5, 100))
        .expect_quiet();
}

#[test]
fn subscriptions_have_a_bound() {
    let lab = Lab::with(|limits| limits.max_subscriptions = 3);
    let mut tool = lab.client(V5, "tool", &Connect::default());
    let mut body = vec![0, 1, 0];
    for number in 0..1_000 {
        body.extend(text(&format!("a/{number}")));
        body.push(1);
    }
    tool.send(&packet(0x82, &body));
    let answer = tool.expect(0x90);
    assert_eq!(answer[3..6], [1, 1, 1]);
    assert!(answer[6..].iter().all(|&code| code == 0x97));
    assert_eq!(tool.subscribe("a/1", 0), 0, "a present one may change");
}

#[test]
fn deep_and_long_topics_are_refused() {
    let lab = Lab::new();
    for topic in ["a/".repeat(20), "a".repeat(600)] {
        let mut tool = lab.client(V5, "tool", &Connect::default());
        assert_eq!(tool.subscribe(&topic, 1), 0x8F);
        tool.publish(&topic, b"x");
        tool.expect_end(0x90);
    }
}

#[test]
fn more_than_the_window_is_a_fault_in_mqtt_5_and_waits_in_mqtt_3() {
    let mut lab = Lab::with(|limits| limits.receive_maximum = 4);
    lab.endpoint.subscribe(&["efl/1/f/d/+/q".into()]);
    let mut new = lab.device(V5, "a");
    for _ in 0..5 {
        new.publish("efl/1/f/d/a/q", b"x");
    }
    new.expect_end(0x93);
    let tickets: Vec<u64> = (0..4).filter_map(|_| lab.message().0).collect();
    lab.endpoint
        .acknowledge(&tickets, edgefl_mqtt::Reason::Success);
    let mut old = lab.device(V3, "b");
    for _ in 0..12 {
        old.publish("efl/1/f/d/b/q", b"x");
    }
    for _ in 0..12 {
        assert!(lab.stat("gateway_unacknowledged") <= 4);
        let ticket = lab.message().0.expect("a ticket");
        lab.endpoint
            .acknowledge(&[ticket], edgefl_mqtt::Reason::Success);
        old.puback();
    }
}

#[test]
fn a_queue_drops_and_tells() {
    let mut lab = Lab::with(|limits| limits.max_queued_messages = 5);
    let lasting = Connect::lasting(V5, 100);
    let mut device = lab.client(V5, "edgefl-f-a", &lasting);
    device.subscribe("efl/1/f/d/a/c", 1);
    device.disconnect();
    for number in 0..8 {
        lab.publish("efl/1/f/d/a/c", &[number], 1);
    }
    let reason = lab.event(|event| match event {
        Event::Dropped { reason, who, .. } => Some((*reason, who.identity.clone())),
        _ => None,
    });
    assert_eq!(reason, (DropReason::QueueFull, Some("a".into())));
    assert_eq!(lab.stat("dropped_full"), 3);
    let mut device = lab.client(V5, "edgefl-f-a", &lasting);
    assert_eq!(device.arrived().payload, [3], "the oldest went");
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let mut lab = Lab::with(|limits| {
        limits.write_stall = Duration::from_millis(300);
        limits.max_queued_bytes = 2 << 20;
    });
    let connect = Connect {
        keep_alive_s: 600,
        ..Connect::lasting(V5, 100)
    };
    let mut device = lab.client(V5, "edgefl-f-a", &connect);
    device.subscribe("efl/1/f/d/a/c", 0);
    for _ in 0..200 {
        lab.publish("efl/1/f/d/a/c", &vec![0; 100_000], 0);
        // The kernel's buffers have to be full as well, which the connection's task sees to.
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(lab.stat("queued_bytes") <= 2 << 20);
    let reason = lab.event(|event| match event {
        Event::Disconnected { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(reason, DisconnectReason::Slow);
}

#[test]
fn a_message_larger_than_a_client_takes_is_dropped() {
    let mut lab = Lab::new();
    let connect = Connect {
        properties: vec![0x27, 0, 0, 4, 0],
        ..Connect::default()
    };
    let mut device = lab.client(V5, "edgefl-f-a", &connect);
    device.subscribe("efl/1/f/d/a/c", 1);
    lab.publish("efl/1/f/d/a/c", &[0; 2_000], 1);
    lab.publish("efl/1/f/d/a/c", b"small", 1);
    assert_eq!(device.arrived().payload, b"small");
    let reason = lab.event(|event| match event {
        Event::Dropped { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(reason, DropReason::TooLarge);
}

#[test]
fn retained_messages_have_a_bound() {
    let lab = Lab::with(|limits| limits.max_retained_messages = 3);
    for number in 0..10 {
        lab.retain(&format!("efl/1/f/m/{number}"), b"x");
    }
    assert_eq!(lab.stat("retained_messages"), 3);
    assert_eq!(lab.stat("not_retained"), 7);
}

#[test]
fn large_packets_in_parts_have_one_bound_together() {
    let mut lab = Lab::with(|limits| {
        limits.max_packet_bytes = 10_000;
        limits.max_partial_bytes = 20_000;
    });
    lab.endpoint.subscribe(&["efl/1/f/d/+/q".into()]);
    let mut parts = Vec::new();
    for name in ["a", "b", "c"] {
        let mut device = lab.device(V5, name);
        let bytes = device.publish_packet(&format!("efl/1/f/d/{name}/q"), &[1; 9_000], 0);
        device.send(&bytes[..5_000]);
        parts.push((device, bytes[5_000..].to_vec()));
    }
    std::thread::sleep(Duration::from_millis(50));
    // Two hold the bound; the third comes in when one of them is done.
    let [(first, rest), _, (third, last)] = &mut parts[..] else {
        panic!("three")
    };
    third.send(last);
    third
        .stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a timeout");
    assert!(
        third.stream.read(&mut [0]).is_err(),
        "nothing to read, and not closed"
    );
    assert_eq!(lab.stat("messages_in"), 0);
    first.send(rest);
    assert_eq!(lab.message().1, "efl/1/f/d/a/q");
    assert_eq!(lab.message().1, "efl/1/f/d/c/q");
}
