//! An endpoint, and a client that knows just enough of MQTT to break its rules.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use edgefl_mqtt::event::Event;
use edgefl_mqtt::{Endpoint, Limits, Listeners, Publishing, Settings};

pub(crate) const FLEET: &str = "f";
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const V3: u8 = 4;
pub(crate) const V5: u8 = 5;

/// A running endpoint on loopback.
pub(crate) struct Lab {
    pub(crate) endpoint: Endpoint,
    pub(crate) port: u16,
    seen: Vec<Event>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = Limits::default();
        change(&mut limits);
        let settings = Settings {
            fleet: FLEET.into(),
            listeners: Listeners {
                mqtt: Some(([127, 0, 0, 1], 0).into()),
                ..Listeners::default()
            },
            tls: None,
            limits,
            worker_threads: 1,
        };
        let endpoint = Endpoint::new(settings, None).expect("good settings");
        let port = endpoint
            .start()
            .expect("a free port")
            .mqtt
            .expect("a listener");
        Self {
            endpoint,
            port,
            seen: Vec::new(),
        }
    }

    /// A connected device.
    pub(crate) fn device(&self, version: u8, name: &str) -> Client {
        self.client(
            version,
            &format!("edgefl-{FLEET}-{name}"),
            &Connect::default(),
        )
    }

    /// A connected client.
    pub(crate) fn client(&self, version: u8, client_id: &str, connect: &Connect) -> Client {
        let mut client = self.dial(version);
        client.send(&connect.packet(version, client_id));
        let (kind, body) = client.read().expect("an answer");
        assert_eq!(kind, 0x20);
        assert_eq!(body[1], 0, "accepted");
        client.session_present = body[0] == 1;
        client.properties = body[2..].to_vec();
        client
    }

    pub(crate) fn dial(&self, version: u8) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client {
            stream,
            version,
            session_present: false,
            properties: Vec::new(),
            next_id: 1,
        }
    }

    /// The next event that fits; others are passed over.
    pub(crate) fn event<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.seen.extend(self.endpoint.take_events(100));
            while !self.seen.is_empty() {
                if let Some(found) = wanted(&self.seen.remove(0)) {
                    return found;
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("the event did not come");
    }

    /// The next message to the gateway: ticket, topic, payload, whether it is a stored one.
    pub(crate) fn message(&mut self) -> (Option<u64>, String, Vec<u8>, bool) {
        self.event(|event| match event {
            Event::Message {
                ticket,
                topic,
                payload,
                retained,
                ..
            } => Some((*ticket, topic.to_string(), payload.to_vec(), *retained)),
            _ => None,
        })
    }

    pub(crate) fn stat(&self, name: &str) -> u64 {
        let found = self
            .endpoint
            .stats()
            .into_iter()
            .find(|(present, _)| *present == name);
        found.expect("a known name").1
    }

    pub(crate) fn wait_stat(&self, name: &str, value: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.stat(name) != value {
            assert!(
                Instant::now() < deadline,
                "{name} is {}, not {value}",
                self.stat(name)
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn publish(&self, topic: &str, payload: &[u8], qos: u8) -> usize {
        let how = Publishing {
            qos,
            ..Publishing::default()
        };
        self.endpoint.publish(topic, payload.to_vec().into(), how)
    }

    pub(crate) fn retain(&self, topic: &str, payload: &[u8]) {
        let how = Publishing {
            qos: 1,
            retain: true,
            expiry_s: None,
        };
        self.endpoint.publish(topic, payload.to_vec().into(), how);
    }
}

/// What a CONNECT says.
pub(crate) struct Connect {
    pub(crate) clean: bool,
    pub(crate) keep_alive_s: u16,
    /// MQTT 5, raw.
    pub(crate) properties: Vec<u8>,
    /// Flags (QoS and retain), raw properties, topic, payload.
    pub(crate) will: Option<(u8, Vec<u8>, String, Vec<u8>)>,
}

impl Default for Connect {
    fn default() -> Self {
        Self {
            clean: true,
            keep_alive_s: 60,
            properties: Vec::new(),
            will: None,
        }
    }
}

impl Connect {
    pub(crate) fn lasting(version: u8, expiry_s: u32) -> Self {
        let mut properties = Vec::new();
        if version == V5 {
            properties.push(0x11);
            properties.extend(expiry_s.to_be_bytes());
        }
        Self {
            clean: false,
            properties,
            ..Self::default()
        }
    }

    pub(crate) fn packet(&self, version: u8, client_id: &str) -> Vec<u8> {
        let mut body = text("MQTT");
        let will = self.will.as_ref().map_or(0, |will| 0x04 | will.0);
        body.extend([version, will | if self.clean { 2 } else { 0 }]);
        body.extend(self.keep_alive_s.to_be_bytes());
        if version == V5 {
            body.extend(sized(&self.properties));
        }
        body.extend(text(client_id));
        if let Some((_, properties, topic, payload)) = &self.will {
            if version == V5 {
                body.extend(sized(properties));
            }
            body.extend(text(topic));
            body.extend(text_bytes(payload));
        }
        packet(0x10, &body)
    }
}

/// A client at the level of packets.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) version: u8,
    pub(crate) session_present: bool,
    /// Of the CONNACK, raw.
    pub(crate) properties: Vec<u8>,
    next_id: u16,
}

/// A PUBLISH that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    pub(crate) id: u16,
    /// Raw.
    pub(crate) properties: Vec<u8>,
}

impl Client {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the endpoint reads");
    }

    /// The next packet; an error where the connection has ended.
    pub(crate) fn read(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        let kind = byte[0];
        let (mut length, mut shift) = (0, 0);
        loop {
            self.stream.read_exact(&mut byte)?;
            length |= usize::from(byte[0] & 0x7F) << shift;
            shift += 7;
            if byte[0] & 0x80 == 0 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((kind, body))
    }

    pub(crate) fn expect(&mut self, kind: u8) -> Vec<u8> {
        let (found, body) = self.read().expect("a packet");
        assert_eq!(found & 0xF0, kind, "packet {found:#x} {body:?}");
        body
    }

    /// The connection ends; in MQTT 5 with this reason.
    pub(crate) fn expect_end(&mut self, reason: u8) {
        if self.version == V5 {
            let body = self.expect(0xE0);
            assert_eq!(body.first().copied().unwrap_or(0), reason);
        }
        assert!(self.read().is_err(), "the connection is closed");
    }

    pub(crate) fn publish_packet(&mut self, topic: &str, payload: &[u8], flags: u8) -> Vec<u8> {
        let mut body = text(topic);
        if flags & 0x06 != 0 {
            body.extend(self.new_id().to_be_bytes());
        }
        if self.version == V5 {
            body.push(0);
        }
        body.extend(payload);
        packet(0x30 | flags, &body)
    }

    /// Publishes with QoS 1, without waiting for the answer.
    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8]) -> u16 {
        let bytes = self.publish_packet(topic, payload, 0x02);
        self.send(&bytes);
        self.next_id - 1
    }

    /// Waits for a PUBACK: its id and reason.
    pub(crate) fn puback(&mut self) -> (u16, u8) {
        let body = self.expect(0x40);
        (
            u16::from_be_bytes([body[0], body[1]]),
            body.get(2).copied().unwrap_or(0),
        )
    }

    /// Subscribes; returns the SUBACK's code.
    pub(crate) fn subscribe(&mut self, filter: &str, options: u8) -> u8 {
        let mut body = self.new_id().to_be_bytes().to_vec();
        if self.version == V5 {
            body.push(0);
        }
        body.extend(text(filter));
        body.push(options);
        self.send(&packet(0x82, &body));
        *self.expect(0x90).last().expect("a code")
    }

    pub(crate) fn unsubscribe(&mut self, filter: &str) -> Vec<u8> {
        let mut body = self.new_id().to_be_bytes().to_vec();
        if self.version == V5 {
            body.push(0);
        }
        body.extend(text(filter));
        self.send(&packet(0xA2, &body));
        self.expect(0xB0)
    }

    pub(crate) fn arrived(&mut self) -> Arrived {
        let (kind, body) = self.read().expect("a message");
        assert_eq!(kind & 0xF0, 0x30, "packet {kind:#x} {body:?}");
        let length = usize::from(u16::from_be_bytes([body[0], body[1]]));
        let topic = String::from_utf8(body[2..2 + length].to_vec()).expect("text");
        let mut rest = &body[2 + length..];
        let qos = (kind >> 1) & 3;
        let mut id = 0;
        if qos > 0 {
            id = u16::from_be_bytes([rest[0], rest[1]]);
            rest = &rest[2..];
        }
        let mut properties = Vec::new();
        if self.version == V5 {
            let length = usize::from(rest[0]);
            assert!(length < 128);
            properties = rest[1..=length].to_vec();
            rest = &rest[1 + length..];
        }
        Arrived {
            topic,
            payload: rest.to_vec(),
            qos,
            retain: kind & 1 == 1,
            dup: kind & 8 == 8,
            id,
            properties,
        }
    }

    pub(crate) fn acknowledge(&mut self, id: u16) {
        self.send(&packet(0x40, &id.to_be_bytes()));
    }

    /// Nothing has arrived: a PING is answered first.
    pub(crate) fn expect_quiet(&mut self) {
        self.send(&[0xC0, 0]);
        assert_eq!(self.read().expect("an answer"), (0xD0, vec![]));
    }

    pub(crate) fn disconnect(mut self) {
        self.send(&[0xE0, 0]);
        assert!(self.read().is_err());
    }

    fn new_id(&mut self) -> u16 {
        self.next_id += 1;
        self.next_id - 1
    }
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    text_bytes(text.as_bytes())
}

fn text_bytes(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("short");
    [&length.to_be_bytes()[..], bytes].concat()
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128);
    [&[u8::try_from(bytes.len()).expect("short")][..], bytes].concat()
}

pub(crate) fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    let mut length = body.len();
    loop {
        let low = u8::try_from(length & 0x7F).expect("seven bits");
        length >>= 7;
        if length == 0 {
            bytes.push(low);
            break;
        }
        bytes.push(low | 0x80);
    }
    bytes.extend(body);
    bytes
}
