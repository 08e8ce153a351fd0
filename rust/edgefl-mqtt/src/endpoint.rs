//! The endpoint as its owner sees it: start, publish, take events, acknowledge, close.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::chunks::{Chunks, TRANSFER_ID_BYTES};
use crate::error::EndpointError;
use crate::event::{Event, Ticket};
use crate::hub::{ConnectionInfo, Hub};
use crate::listener::{listen, Door, Kind, TlsSlot};
use crate::lock::lock;
use crate::message::{after, Message};
use crate::rate::PeerRate;
use crate::reason::Reason;
use crate::settings::{Settings, TlsMaterial};
use crate::sink::ChunkSink;
use crate::tls::server_config;
use crate::waiting_room::WaitingRoom;

const TICK: Duration = Duration::from_millis(250);
/// Retained messages are looked through once in so many ticks.
const TICKS_PER_EXPIRY: u32 = 40;
const CLOSE_TIME: Duration = Duration::from_secs(3);

/// Where the endpoint listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bound {
    /// MQTT without TLS.
    pub mqtt: Option<u16>,
    /// MQTT over TLS.
    pub mqtts: Option<u16>,
    /// WebSocket without TLS.
    pub ws: Option<u16>,
    /// WebSocket over TLS.
    pub wss: Option<u16>,
}

/// An MQTT server on threads of its own.
pub struct Endpoint {
    settings: Settings,
    hub: Arc<Hub>,
    tls: TlsSlot,
    stop: CancellationToken,
    runtime: Mutex<Phase>,
}

enum Phase {
    New,
    Running(Runtime),
    Closed,
}

impl Endpoint {
    /// Prepares; nothing listens before `start`.
    ///
    /// # Errors
    /// A setting is out of range, or the certificates cannot be used.
    pub fn new(
        settings: Settings,
        sink: Option<Arc<dyn ChunkSink>>,
    ) -> Result<Self, EndpointError> {
        settings.check()?;
        let tls = settings.tls.as_ref().map(server_config).transpose()?;
        let hub = Arc::new(Hub::new(&settings, sink)?);
        // The TLS library has them now; the key is not kept a second time.
        let settings = Settings {
            tls: None,
            ..settings
        };
        Ok(Self {
            settings,
            hub,
            tls: Arc::new(RwLock::new(tls)),
            stop: CancellationToken::new(),
            runtime: Mutex::new(Phase::New),
        })
    }

    /// Listens, and serves from then on.
    ///
    /// # Errors
    /// An address is taken or forbidden, the endpoint was started before, or the system refuses
    /// threads.
    pub fn start(&self) -> Result<Bound, EndpointError> {
        let mut phase = lock(&self.runtime);
        match *phase {
            Phase::New => {}
            Phase::Running(_) => return Err(EndpointError::State("started already")),
            Phase::Closed => return Err(EndpointError::State("closed")),
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.settings.worker_threads)
            .thread_name("edgefl-mqtt")
            .thread_stack_size(1 << 20)
            .enable_io()
            .enable_time()
            .build()?;
        let bound = runtime.block_on(self.listen())?;
        let hub = self.hub.clone();
        let stop = self.stop.clone();
        runtime.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = keep_time(&hub) => {}
            }
        });
        *phase = Phase::Running(runtime);
        Ok(bound)
    }

    async fn listen(&self) -> Result<Bound, EndpointError> {
        let limits = &self.settings.limits;
        let door = Door {
            hub: self.hub.clone(),
            tls: self.tls.clone(),
            rate: Arc::new(Mutex::new(PeerRate::new(limits.handshakes_per_peer_per_s))),
            waiting_room: WaitingRoom::new(limits.max_handshakes),
            partial: Arc::new(Semaphore::new(limits.max_partial_bytes)),
            stop: self.stop.clone(),
        };
        let wanted = &self.settings.listeners;
        // All are bound before the first one serves, so that a failure leaves nothing behind.
        let kinds = [
            (
                wanted.mqtt,
                Kind {
                    has_tls: false,
                    has_websocket: false,
                },
            ),
            (
                wanted.mqtts,
                Kind {
                    has_tls: true,
                    has_websocket: false,
                },
            ),
            (
                wanted.ws,
                Kind {
                    has_tls: false,
                    has_websocket: true,
                },
            ),
            (
                wanted.wss,
                Kind {
                    has_tls: true,
                    has_websocket: true,
                },
            ),
        ];
        let mut listeners = Vec::new();
        let mut ports = [None; 4];
        for ((address, kind), port) in kinds.into_iter().zip(&mut ports) {
            let Some(address) = address else { continue };
            let (listener, bound) = bind(address).await?;
            *port = Some(bound);
            listeners.push((listener, kind));
        }
        for (listener, kind) in listeners {
            tokio::spawn(listen(listener, kind, door.clone()));
        }
        let [mqtt, mqtts, ws, wss] = ports;
        Ok(Bound {
            mqtt,
            mqtts,
            ws,
            wss,
        })
    }

    /// Publishes to every subscriber; tells how many there are. Does not wait: queues are bounded,
    /// and what finds no room is reported.
    pub fn publish(&self, topic: &str, payload: Bytes, how: Publishing) -> usize {
        let message = Message {
            topic: topic.into(),
            chunk_head: None,
            payload,
            qos: how.qos.min(1),
            retain: how.retain,
            expires: how
                .expiry_s
                .and_then(|seconds| after(Instant::now(), seconds)),
            properties: None,
        };
        self.hub.publish_own(&message)
    }

    /// Sends chunks of a transfer (QoS 1) to whoever hears a topic, as fast as it acknowledges them
    /// and when nothing else waits for it; tells how many hear it. Chunks of the same transfer
    /// follow those that it was given before. A transfer ends with its client's connection.
    pub fn send_chunks(&self, topic: &str, chunks: &Chunks) -> usize {
        self.hub.add_chunks(&topic.into(), chunks)
    }

    /// Sends no more chunks of a transfer than are under way.
    pub fn stop_chunks(&self, topic: &str, transfer_id: [u8; TRANSFER_ID_BYTES]) {
        self.hub.stop_chunks(topic, transfer_id);
    }

    /// Asks for messages of well-formed filters; retained ones come at once.
    pub fn subscribe(&self, filters: &[String]) {
        for filter in filters {
            self.hub.subscribe_own(filter);
        }
    }

    /// Takes up to `max` events; does not wait.
    pub fn take_events(&self, max: usize) -> Vec<Event> {
        self.hub.gateway.take(max)
    }

    /// Lets the PUBACKs of these messages go out.
    pub fn acknowledge(&self, tickets: &[Ticket], reason: Reason) {
        self.hub.gateway.acknowledge(tickets, reason);
    }

    /// Readable while events wait.
    pub fn signal(&self) -> &std::os::unix::net::UnixStream {
        self.hub.gateway.signal()
    }

    /// Replaces certificates and keys for connections from now on.
    ///
    /// # Errors
    /// They cannot be used; the present ones stay.
    pub fn set_tls(&self, material: &TlsMaterial) -> Result<(), EndpointError> {
        let config = server_config(material)?;
        if let Ok(mut slot) = self.tls.write() {
            *slot = Some(config);
        }
        Ok(())
    }

    /// Replaces the lists of who is shut out, and cuts them off.
    pub fn set_revoked(&self, serials: Vec<String>, identities: Vec<String>) {
        self.hub.set_revoked(serials, identities);
    }

    /// Ends the connections of an identity; tells how many there were.
    pub fn disconnect(&self, identity: &str, reason: Reason) -> usize {
        self.hub.disconnect(identity, reason)
    }

    /// Counters and present sizes by name.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        self.hub.stats()
    }

    /// Every session.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.hub.connections()
    }

    /// Says goodbye to every client, waits a moment for it to arrive, and ends all threads.
    pub fn close(&self) {
        let phase = std::mem::replace(&mut *lock(&self.runtime), Phase::Closed);
        let Phase::Running(runtime) = phase else {
            return;
        };
        self.stop.cancel();
        self.hub.shut_down();
        let deadline = Instant::now() + CLOSE_TIME;
        while self.open_connections() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        runtime.shutdown_timeout(Duration::from_millis(200));
    }

    fn open_connections(&self) -> usize {
        self.hub
            .connection_count
            .load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}

/// How a message is published.
#[derive(Debug, Clone, Copy, Default)]
pub struct Publishing {
    /// 0 or 1.
    pub qos: u8,
    /// Keep it for later subscribers.
    pub retain: bool,
    /// How long it is worth delivering.
    pub expiry_s: Option<u32>,
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, u16), EndpointError> {
    let failed = |source| EndpointError::Bind {
        address: address.to_string(),
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    Ok((listener, port))
}

async fn keep_time(hub: &Hub) {
    let mut ticks = tokio::time::interval(TICK);
    let mut count = 0u32;
    loop {
        ticks.tick().await;
        let now = Instant::now();
        hub.tick(now);
        count = count.wrapping_add(1);
        if count % TICKS_PER_EXPIRY == 0 {
            hub.expire_retained(now);
        }
    }
}
