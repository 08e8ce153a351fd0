//! Who a peer is, and which topics it may use. Pure; the table is in docs/endpoint.md.

use crate::topic;

const CLAIM_PREFIX: &str = "claim-";
const ROOT: &str = "efl/1";
/// The sender name of the aggregator, which is in this process and needs no connection.
const AGGREGATOR: &str = "aggregator";

/// Who speaks on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// A device, by its certificate or, on loopback without TLS, by its client id.
    Device(String),
    /// Whoever holds a claim certificate, which is good for enrolment only.
    Claim(String),
    /// A program on this machine that is no device.
    Local,
}

/// A peer: its role, and the name that its session is kept under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Decides what it may do.
    pub role: Role,
    /// Two connections with the same key are one session.
    pub session_key: String,
}

impl Peer {
    /// The identity that the link proves; none for programs on this machine.
    pub fn identity(&self) -> Option<&str> {
        match &self.role {
            Role::Device(name) | Role::Claim(name) => Some(name),
            Role::Local => None,
        }
    }
}

/// Access rules of one fleet.
#[derive(Debug, Clone)]
pub struct Rules {
    fleet: String,
}

impl Rules {
    /// Makes the rules of a fleet.
    pub fn new(fleet: &str) -> Self {
        Self {
            fleet: fleet.to_owned(),
        }
    }

    /// Names the peer of a TLS connection, or `None` where the client id is somebody else's.
    ///
    /// A device has one session, whatever it calls itself: its client id must be its name or
    /// `edgefl-FLEET-NAME`. Several devices may share a claim, so there the client id counts too.
    pub fn certified_peer(&self, common_name: &str, client_id: &str) -> Option<Peer> {
        if common_name.starts_with(CLAIM_PREFIX) {
            return Some(Peer {
                role: Role::Claim(common_name.to_owned()),
                session_key: format!("claim:{common_name}:{client_id}"),
            });
        }
        let is_own = client_id.is_empty()
            || client_id == common_name
            || self.device_of(client_id) == Some(common_name);
        (is_own && common_name != AGGREGATOR).then(|| device_peer(common_name))
    }

    /// Names the peer of a connection on loopback without TLS.
    pub fn local_peer(&self, client_id: &str) -> Peer {
        match self.device_of(client_id) {
            Some(device) => device_peer(device),
            None => Peer {
                role: Role::Local,
                session_key: format!("local:{client_id}"),
            },
        }
    }

    fn device_of<'id>(&self, client_id: &'id str) -> Option<&'id str> {
        let rest = client_id
            .strip_prefix("edgefl-")?
            .strip_prefix(self.fleet.as_str())?;
        let device = rest.strip_prefix('-')?;
        let is_device = !device.is_empty() && !device.contains(['/', '+', '#']);
        (is_device && device != AGGREGATOR).then_some(device)
    }

    /// Tells whether a role may publish on a well-formed topic.
    pub fn may_publish(&self, role: &Role, topic: &str) -> bool {
        if topic.starts_with('$') {
            return false;
        }
        match role {
            Role::Local => !is_ours(topic),
            Role::Claim(claim) => self.rest(topic, "enrol", claim) == Some("q"),
            Role::Device(device) => match self.rest(topic, "d", device) {
                Some("st" | "q" | "kb") => true,
                Some(rest) => rest
                    .strip_prefix("up/")
                    .is_some_and(|transfer| !transfer.is_empty() && !transfer.contains('/')),
                None => false,
            },
        }
    }

    /// Tells whether a client's message on a topic that it may use is kept for later subscribers.
    ///
    /// Of a device only its state is, so that none can take the room of the others.
    pub fn may_retain(&self, topic: &str) -> bool {
        if !is_ours(topic) {
            return true;
        }
        self.fleet_rest(topic)
            .and_then(|rest| rest.strip_prefix("d/")?.split_once('/'))
            .is_some_and(|(_, rest)| rest == "st")
    }

    /// Tells whether a role may subscribe to a well-formed filter.
    pub fn may_subscribe(&self, role: &Role, filter: &str) -> bool {
        match role {
            Role::Local => !filter.starts_with('$'),
            Role::Claim(claim) => self.rest(filter, "enrol", claim) == Some("c"),
            Role::Device(device) => {
                if self.rest(filter, "d", device) == Some("c") {
                    return true;
                }
                let Some(rest) = self.fleet_rest(filter) else {
                    return false;
                };
                ["m/#", "r/+/call", "agg"]
                    .iter()
                    .any(|allowed| topic::covers(allowed, rest))
            }
        }
    }

    /// What follows `efl/1/FLEET/KIND/NAME/`.
    fn rest<'topic>(&self, topic: &'topic str, kind: &str, name: &str) -> Option<&'topic str> {
        let rest = self
            .fleet_rest(topic)?
            .strip_prefix(kind)?
            .strip_prefix('/')?;
        rest.strip_prefix(name)?.strip_prefix('/')
    }

    fn fleet_rest<'topic>(&self, topic: &'topic str) -> Option<&'topic str> {
        let rest = topic.strip_prefix(ROOT)?.strip_prefix('/')?;
        rest.strip_prefix(self.fleet.as_str())?.strip_prefix('/')
    }
}

fn device_peer(device: &str) -> Peer {
    Peer {
        role: Role::Device(device.to_owned()),
        session_key: format!("device:{device}"),
    }
}

fn is_ours(topic: &str) -> bool {
    topic == "efl" || topic.starts_with("efl/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules::new("f")
    }

    fn device(name: &str) -> Role {
        Role::Device(name.to_owned())
    }

    #[test]
    fn a_device_publishes_on_its_own_topics_only() {
        for (topic, expected) in [
            ("efl/1/f/d/a/st", true),
            ("efl/1/f/d/a/q", true),
            ("efl/1/f/d/a/kb", true),
            ("efl/1/f/d/a/up/x1", true),
            ("efl/1/f/d/a/up/", false),
            ("efl/1/f/d/a/up", false),
            ("efl/1/f/d/a/up/x1/y", false),
            ("efl/1/f/d/a/c", false),
            ("efl/1/f/d/b/q", false),
            ("efl/1/f/d/ab/q", false),
            ("efl/1/g/d/a/q", false),
            ("efl/1/f/agg", false),
            ("efl/1/f/m/cur", false),
            ("efl/1/f/r/all/call", false),
            ("efl/1/f/enrol/a/q", false),
            ("x", false),
            ("$SYS/x", false),
        ] {
            assert_eq!(
                rules().may_publish(&device("a"), topic),
                expected,
                "{topic}"
            );
        }
    }

    #[test]
    fn a_device_reads_its_own_commands_and_what_is_for_all() {
        for (filter, expected) in [
            ("efl/1/f/d/a/c", true),
            ("efl/1/f/m/#", true),
            ("efl/1/f/m/ab/man", true),
            ("efl/1/f/r/+/call", true),
            ("efl/1/f/r/c1/call", true),
            ("efl/1/f/agg", true),
            ("efl/1/f/d/b/c", false),
            ("efl/1/f/d/+/c", false),
            ("efl/1/f/d/a/q", false),
            ("efl/1/f/d/a/#", false),
            ("efl/1/f/#", false),
            ("efl/1/+/agg", false),
            ("efl/1/f/r/#", false),
            ("#", false),
            ("+/1/f/agg", false),
            ("$SYS/#", false),
        ] {
            assert_eq!(
                rules().may_subscribe(&device("a"), filter),
                expected,
                "{filter}"
            );
        }
    }

    #[test]
    fn only_a_device_s_state_is_kept() {
        for (topic, expected) in [
            ("efl/1/f/d/a/st", true),
            ("efl/1/f/d/a/q", false),
            ("efl/1/f/d/a/kb", false),
            ("efl/1/f/d/a/up/x1", false),
            ("efl/1/f/d/a/up/st", false),
            ("efl/1/f/enrol/claim-1/q", false),
            ("house/light", true),
        ] {
            assert_eq!(rules().may_retain(topic), expected, "{topic}");
        }
    }

    #[test]
    fn a_claim_opens_its_enrolment_only() {
        let claim = Role::Claim("claim-1".to_owned());
        assert!(rules().may_publish(&claim, "efl/1/f/enrol/claim-1/q"));
        assert!(rules().may_subscribe(&claim, "efl/1/f/enrol/claim-1/c"));
        for topic in [
            "efl/1/f/enrol/claim-1/c",
            "efl/1/f/enrol/claim-2/q",
            "efl/1/f/d/claim-1/q",
        ] {
            assert!(!rules().may_publish(&claim, topic), "{topic}");
        }
        for filter in [
            "efl/1/f/enrol/claim-1/#",
            "efl/1/f/enrol/+/c",
            "efl/1/f/agg",
        ] {
            assert!(!rules().may_subscribe(&claim, filter), "{filter}");
        }
    }

    #[test]
    fn a_local_program_reads_everything_and_says_nothing_in_our_name() {
        assert!(rules().may_subscribe(&Role::Local, "efl/#"));
        assert!(rules().may_subscribe(&Role::Local, "#"));
        assert!(rules().may_publish(&Role::Local, "house/light"));
        for topic in [
            "efl/1/f/agg",
            "efl/1/f/d/a/c",
            "efl/1/f/m/cur",
            "efl",
            "efl/1/f/d/a/q",
        ] {
            assert!(!rules().may_publish(&Role::Local, topic), "{topic}");
        }
    }

    #[test]
    fn a_certificate_binds_the_client_id() {
        for client_id in ["dev", "edgefl-f-dev", ""] {
            let peer = rules().certified_peer("dev", client_id);
            assert_eq!(peer, Some(device_peer("dev")), "{client_id}");
        }
        for client_id in ["other", "edgefl-f-other", "edgefl-g-dev"] {
            assert_eq!(
                rules().certified_peer("dev", client_id),
                None,
                "{client_id}"
            );
        }
        assert_eq!(rules().certified_peer("aggregator", ""), None);
        let first = rules()
            .certified_peer("claim-1", "x")
            .map(|peer| peer.session_key);
        let second = rules()
            .certified_peer("claim-1", "y")
            .map(|peer| peer.session_key);
        assert_ne!(first, second);
    }

    #[test]
    fn a_client_id_names_the_device_on_loopback() {
        assert_eq!(rules().local_peer("edgefl-f-dev"), device_peer("dev"));
        assert_eq!(rules().local_peer("edgefl-f-a/b").role, Role::Local);
        assert_eq!(rules().local_peer("mosq-1").role, Role::Local);
        assert_eq!(rules().local_peer("edgefl-f-").role, Role::Local);
        assert_eq!(rules().local_peer("edgefl-f-aggregator").role, Role::Local);
    }
}
