//! Accepts connections and leads each through TLS and WebSocket to its session.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, PollSemaphore};

use crate::certificate::{self, Certified};
use crate::connection::Connection;
use crate::counters::add;
use crate::handshake::greet;
use crate::hub::Hub;
use crate::lock::lock;
use crate::rate::PeerRate;
use crate::reason::Reason;
use crate::stream::BoxedStream;
use crate::tls_stream::TlsStream;
use crate::waiting_room::{Place, WaitingRoom};
use crate::websocket;

/// After an accept that failed, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a listener's connections go through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) has_tls: bool,
    pub(crate) has_websocket: bool,
}

/// The TLS side, which may be replaced while listening.
pub(crate) type TlsSlot = Arc<RwLock<Option<Arc<ServerConfig>>>>;

/// What all listeners share.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) hub: Arc<Hub>,
    pub(crate) tls: TlsSlot,
    pub(crate) rate: Arc<Mutex<PeerRate>>,
    pub(crate) waiting_room: Arc<WaitingRoom>,
    pub(crate) partial: Arc<Semaphore>,
    pub(crate) stop: CancellationToken,
}

/// Accepts until told to stop.
pub(crate) async fn listen(listener: TcpListener, kind: Kind, door: Door) {
    loop {
        let accepted = tokio::select! {
            () = door.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => admit(stream, address, kind, &door),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Starts the task of a connection, unless there are too many.
fn admit(stream: TcpStream, address: SocketAddr, kind: Kind, door: &Door) {
    let hub = &door.hub;
    add(&hub.counters.accepted, 1);
    let count = hub.connection_count.load(Ordering::Relaxed);
    let is_allowed =
        count < hub.limits.max_connections && lock(&door.rate).allow(address.ip(), Instant::now());
    if !is_allowed {
        add(&hub.counters.turned_away, 1);
        return;
    }
    let place = door.waiting_room.enter();
    hub.connection_count.fetch_add(1, Ordering::Relaxed);
    let counted = Counted(hub.clone());
    // Its future is large, and over when a connection is open; the task's own stays small.
    let opening = Box::pin(open(stream, address, kind, door.clone(), place));
    tokio::spawn(async move {
        let _counted = counted;
        if let Some(connection) = opening.await {
            connection.serve().await;
        }
    });
}

struct Counted(Arc<Hub>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connection_count.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn open(
    stream: TcpStream,
    address: SocketAddr,
    kind: Kind,
    door: Door,
    place: Place,
) -> Option<Box<Connection>> {
    let hub = &door.hub;
    let secured = tokio::select! {
        secured = secure_and_upgrade(stream, address, kind, &door) => secured,
        () = place.shown_out() => {
            add(&hub.counters.turned_away, 1);
            None
        }
    };
    let (mut stream, certified) = secured?;
    let greeted = tokio::select! {
        () = door.stop.cancelled() => None,
        greeted = greet(hub, &mut stream, address, certified.as_ref(), place.shown_out()) => greeted,
    };
    let partial = PollSemaphore::new(door.partial.clone());
    greeted.map(|greeted| Connection::new(hub.clone(), stream, greeted, partial))
}

/// Does what comes before the first byte of MQTT.
async fn secure_and_upgrade(
    stream: TcpStream,
    address: SocketAddr,
    kind: Kind,
    door: &Door,
) -> Option<(BoxedStream, Option<Certified>)> {
    let hub = &door.hub;
    // Acknowledgements are small and waited for.
    let _ = stream.set_nodelay(true);
    let mut certified = None;
    let mut stream: BoxedStream = if kind.has_tls {
        let secured = timeout(hub.limits.tls_time, secure(stream, door)).await;
        match secured.unwrap_or_else(|_| Err("no TLS handshake in time".to_owned())) {
            Ok((secured, owner)) => {
                certified = Some(owner);
                secured
            }
            Err(detail) => return fail(hub, address, Reason::NotAuthorized, detail),
        }
    } else {
        Box::new(stream)
    };
    if kind.has_websocket {
        let upgrade = websocket::accept(stream, hub.limits.max_packet_bytes);
        match timeout(hub.limits.connect_time, upgrade).await {
            Ok(Ok(upgraded)) => stream = upgraded,
            Ok(Err(error)) => {
                return fail(
                    hub,
                    address,
                    Reason::ProtocolError,
                    format!("WebSocket: {error}"),
                );
            }
            Err(_) => {
                let detail = "no WebSocket handshake in time".to_owned();
                return fail(hub, address, Reason::MaximumConnectTime, detail);
            }
        }
    }
    Some((stream, certified))
}

fn fail<T>(hub: &Hub, address: SocketAddr, reason: Reason, detail: String) -> Option<T> {
    add(&hub.counters.failed_handshakes, 1);
    hub.notice_refusal(None, address, reason, detail);
    None
}

/// Does the TLS handshake and reads the peer's name from its certificate.
async fn secure(stream: TcpStream, door: &Door) -> Result<(BoxedStream, Certified), String> {
    let config = door.tls.read().ok().and_then(|config| config.clone());
    let config = config.ok_or_else(|| "no certificates".to_owned())?;
    let secured = TlsStream::accept(stream, config)
        .await
        .map_err(|error| format!("TLS: {error}"))?;
    let certificates = secured.peer_certificates();
    let owner = certificates.first().and_then(|der| certificate::read(der));
    let owner = owner.ok_or_else(|| "TLS: the certificate names no device".to_owned())?;
    Ok((Box::new(secured), owner))
}
