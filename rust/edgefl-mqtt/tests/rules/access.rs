//! Who may do what, as seen on the wire.

use edgefl_mqtt::event::Event;

use crate::harness::{packet, text, Connect, Lab, V3, V5};

#[test]
fn a_foreign_topic_is_refused_in_the_puback_of_mqtt_5() {
    let mut lab = Lab::new();
    lab.endpoint.subscribe(&["efl/1/f/#".into()]);
    let mut device = lab.device(V5, "a");
    device.publish("efl/1/f/d/b/q", b"x");
    assert_eq!(device.puback().1, 0x87);
    let (code, detail) = lab.event(|event| match event {
        Event::Refused { code, detail, .. } => Some((*code, detail.clone())),
        _ => None,
    });
    assert_eq!((code, detail.as_str()), (0x87, "message on efl/1/f/d/b/q"));
    device.publish("efl/1/f/d/a/q", b"own");
    assert_eq!(lab.message().2, b"own");
}

#[test]
fn a_foreign_topic_ends_a_connection_of_mqtt_3() {
    let lab = Lab::new();
    let mut device = lab.device(V3, "a");
    device.publish("efl/1/f/agg", b"x");
    device.expect_end(0);
}

#[test]
fn foreign_filters_are_refused_one_by_one() {
    let lab = Lab::new();
    for (version, refused) in [(V3, 0x80), (V5, 0x87)] {
        let mut device = lab.device(version, "a");
        for filter in [
            "#",
            "efl/#",
            "efl/1/f/d/b/c",
            "efl/1/f/d/a/q",
            "efl/1/f/d/+/c",
        ] {
            assert_eq!(device.subscribe(filter, 1), refused, "{filter}");
        }
        assert_eq!(device.subscribe("efl/1/f/r/+/call", 1), 1);
    }
    assert_eq!(lab.publish("efl/1/f/d/b/c", b"secret", 1), 0);
}

#[test]
fn local_programs_see_all_and_forge_nothing() {
    let lab = Lab::new();
    let mut tool = lab.client(V5, "mosquitto_pub", &Connect::default());
    for topic in [
        "efl/1/f/agg",
        "efl/1/f/d/a/c",
        "efl/1/f/m/cur",
        "efl/1/f/r/all/call",
    ] {
        tool.publish(topic, b"forged");
        assert_eq!(tool.puback().1, 0x87, "{topic}");
    }
    assert_eq!(tool.subscribe("efl/#", 0), 0);
    lab.publish("efl/1/f/d/a/c", b"x", 1);
    assert_eq!(tool.arrived().topic, "efl/1/f/d/a/c");
}

#[test]
fn qos_2_is_refused_by_its_reason() {
    let lab = Lab::new();
    for version in [V3, V5] {
        let mut device = lab.device(version, "a");
        let bytes = device.publish_packet("efl/1/f/d/a/q", b"x", 0x04);
        device.send(&bytes);
        device.expect_end(0x9B);
    }
    let device = lab.device(V5, "a");
    assert!(
        device.properties.windows(2).any(|pair| pair == [0x24, 1]),
        "maximum QoS is announced"
    );
    let will = (0x10, Vec::new(), "efl/1/f/d/b/st".to_owned(), b"x".to_vec());
    let connect = Connect {
        will: Some(will),
        ..Connect::default()
    };
    let mut other = lab.dial(V5);
    other.send(&connect.packet(V5, "edgefl-f-b"));
    assert_eq!(other.expect(0x20)[1], 0x9B);
}

#[test]
fn what_is_not_offered_is_refused_by_its_reason() {
    let lab = Lab::new();
    let mut device = lab.device(V5, "a");
    assert_eq!(device.subscribe("$share/group/efl/1/f/agg", 1), 0x9E);
    assert_eq!(device.subscribe("$SYS/#", 1), 0x87);
    assert_eq!(device.subscribe("a#", 1), 0x8F);
    let mut body = vec![0, 9, 2, 0x0B, 1];
    body.extend(text("efl/1/f/agg"));
    body.push(1);
    device.send(&packet(0x82, &body));
    device.expect_end(0xA1);
    let mut other = lab.dial(V5);
    let connect = Connect {
        properties: [&[0x15][..], &text("SCRAM")].concat(),
        ..Connect::default()
    };
    other.send(&connect.packet(V5, "x"));
    assert_eq!(other.expect(0x20)[1], 0x8C);
}

#[test]
fn other_versions_are_told_so() {
    let lab = Lab::new();
    for version in [3, 6, 0x84] {
        let mut client = lab.dial(V3);
        client.send(&Connect::default().packet(version, "x"));
        assert_eq!(client.read().expect("an answer"), (0x20, vec![0, 1]));
        assert!(client.read().is_err());
    }
}

#[test]
fn a_will_obeys_the_same_rules() {
    let lab = Lab::new();
    for (topic, code) in [
        ("efl/1/f/d/b/st", 0x87),
        ("efl/1/f/agg", 0x87),
        ("a/#", 0x90),
    ] {
        let will = (0, Vec::new(), topic.to_owned(), b"x".to_vec());
        let connect = Connect {
            will: Some(will),
            ..Connect::default()
        };
        let mut client = lab.dial(V5);
        client.send(&connect.packet(V5, "edgefl-f-a"));
        assert_eq!(client.expect(0x20)[1], code, "{topic}");
    }
}

#[test]
fn a_revoked_identity_is_cut_and_stays_out() {
    let mut lab = Lab::new();
    let mut device = lab.client(V5, "edgefl-f-a", &Connect::lasting(V5, 1_000));
    lab.endpoint.set_revoked(vec![], vec!["a".into()]);
    device.expect_end(0x87);
    lab.event(|event| matches!(event, Event::Disconnected { .. }).then_some(()));
    for (version, code) in [(V3, 5), (V5, 0x87)] {
        let mut again = lab.dial(version);
        again.send(&Connect::default().packet(version, "edgefl-f-a"));
        assert_eq!(again.expect(0x20)[1], code);
    }
    assert_eq!(lab.stat("sessions"), 0, "what waited for it is gone");
    lab.device(V5, "b").expect_quiet();
    lab.endpoint.set_revoked(vec![], vec![]);
    lab.device(V5, "a").expect_quiet();
}

#[test]
fn the_operator_ends_connections() {
    let lab = Lab::new();
    let mut device = lab.device(V5, "a");
    assert_eq!(
        lab.endpoint
            .disconnect("a", edgefl_mqtt::Reason::AdministrativeAction),
        1
    );
    device.expect_end(0x98);
    assert_eq!(
        lab.endpoint
            .disconnect("nobody", edgefl_mqtt::Reason::Success),
        0
    );
}
