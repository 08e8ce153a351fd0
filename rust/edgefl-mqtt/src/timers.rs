//! When sessions end and wills are due: looked at a few times a second, exact to that.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::router::SessionId;

/// Moments at which a session has to be looked at. A session may have several, and may find that
/// none applies any more.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Instant, SessionId)>,
}

impl Timers {
    /// Has the session looked at then.
    pub(crate) fn set(&mut self, at: Instant, session: SessionId) {
        self.due.insert((at, session));
    }

    /// Returns the sessions whose moment has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<SessionId> {
        let later = self.due.split_off(&(now, SessionId::MAX));
        let due = std::mem::replace(&mut self.due, later);
        due.into_iter().map(|(_, session)| session).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn gives_what_is_due_once() {
        let now = Instant::now();
        let mut timers = Timers::default();
        timers.set(now, 1);
        timers.set(now + Duration::from_secs(1), 2);
        assert_eq!(timers.take_due(now), [1]);
        assert!(timers.take_due(now).is_empty());
        assert_eq!(timers.take_due(now + Duration::from_secs(1)), [2]);
    }
}
