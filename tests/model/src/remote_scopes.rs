//! The scopes of requests that are executed elsewhere: one scope for each policy, and one for deletions.
//!
//! Invariant: the service behaves as the policy assumes. A request is not under way for longer than a probe waits before its
//! result proves something. An id is remembered for as long as it may be sent again, and then for as long as that request may be
//! under way.

use crate::letters::Letter;
use crate::oracle::{ADMINISTRATOR, Aim};
use crate::properties::Sometimes;
use crate::remote_judge::{BY_HAND, Word};
use crate::remotes::RemoteScope;
use semel_core::message::Method;
use semel_core::server::Config;
use semel_core::server::handler::Policy;

const RETENTION_S: i64 = 1_000;
const DEDUP_S: i64 = 60;
const SETTLE_S: i64 = 30;

/// All scopes of remotes.
pub fn all() -> Vec<RemoteScope> {
    vec![report(), resend(), probe(), deleted()]
}

/// The scope with this name.
pub fn named(name: &str) -> Option<RemoteScope> {
    all().into_iter().find(|scope| scope.name == name)
}

fn change(name: &'static str) -> Letter {
    Letter::change(name, "ann", "a", "1")
}

impl Letter {
    /// A letter by which an administrator resolves an id that is in doubt.
    pub fn resolve(name: &'static str, id: &str, word: Word) -> Self {
        let body = match word {
            Word::Ran => format!("{{\"executed\":\"yes\",\"outcome\":{{\"status\":200,\"body\":\"{BY_HAND}\"}}}}"),
            Word::DidNotRun => "{\"executed\":\"no\"}".to_owned(),
        };
        let path = format!("/semel/v1/admin/keys/k/records/{id}/resolve");
        let letter = Self::new(name, Aim::Resolve(word), ADMINISTRATOR, id, (Method::Post, &path), body);
        letter.with("idempotency-key", name.replace(' ', "-"))
    }

    /// The deadline of the letter.
    pub(crate) fn deadline_s(&self) -> Option<i64> {
        let deadline_ms = self.request.headers.get("semel-deadline")?.parse::<i64>().ok()?;
        Some(deadline_ms / 1000)
    }
}

fn resolutions() -> [Letter; 2] {
    [
        Letter::resolve("the word that a ran", "a", Word::Ran),
        Letter::resolve("the word that a did not run", "a", Word::DidNotRun),
    ]
}

fn scope(name: &'static str, policy: Policy, letters: impl IntoIterator<Item = Letter>) -> RemoteScope {
    RemoteScope {
        name,
        policy,
        letters: letters.into_iter().collect(),
        instants_s: &[0, 20],
        transit_s: i64::MAX,
        knows_s: None,
        dispatches_max: 2,
        config: Config { retention_s: RETENTION_S, open: true, ..Config::default() },
        sometimes: &[],
    }
}

/// A service of which nothing is known: a request that is in doubt stays in doubt, past any retention, until an administrator
/// resolves it.
fn report() -> RemoteScope {
    let letters = [change("ann's a"), Letter::look_up("ann's look-up of a", "ann", "a")];
    RemoteScope {
        instants_s: &[0, RETENTION_S + 5, RETENTION_S + 40],
        sometimes: &[
            Sometimes::Replay,
            Sometimes::OutcomeUnknown,
            Sometimes::Resolved,
            Sometimes::Unreachable,
            Sometimes::Cancelled,
            Sometimes::Tombstone,
        ],
        ..scope("report", Policy::Report, letters.into_iter().chain(resolutions()))
    }
}

/// A service that knows ids, and forgets them.
fn resend() -> RemoteScope {
    let letters = [change("ann's a"), change("ann's a with an early deadline").by(10)];
    RemoteScope {
        instants_s: &[0, 55, 70, DEDUP_S + SETTLE_S],
        transit_s: SETTLE_S,
        knows_s: Some(DEDUP_S + SETTLE_S),
        dispatches_max: 3,
        sometimes: &[
            Sometimes::Replay,
            Sometimes::Resent,
            Sometimes::OutcomeUnknown,
            Sometimes::Unreachable,
            Sometimes::Late,
        ],
        ..scope("resend", Policy::Resend { dedup_s: DEDUP_S }, letters)
    }
}

/// A service that can be asked for what a request made, and knows no ids.
fn probe() -> RemoteScope {
    let letters = [change("ann's a"), change("ann's a with an early deadline").by(10)];
    RemoteScope {
        instants_s: &[0, 20, SETTLE_S, 2 * SETTLE_S],
        transit_s: SETTLE_S,
        sometimes: &[
            Sometimes::Replay,
            Sometimes::Found,
            Sometimes::ProvenAbsent,
            Sometimes::Unreachable,
            Sometimes::Late,
        ],
        ..scope("probe", Policy::Probe { path: "/made".to_owned(), timeout_s: SETTLE_S, settle_s: SETTLE_S }, letters)
    }
}

/// Requests that are cancelled, acknowledged and deleted before, while and after they are under way.
fn deleted() -> RemoteScope {
    let letters = [
        change("ann's a").first_sent(0).by(100),
        Letter::cancel("the cancellation of a", "ann", "a", Some(0)).by(100),
        Letter::acknowledge("ann's acknowledgement of a", "ann").acknowledging("a", 100),
        Letter::record("the deletion of a", ADMINISTRATOR, Aim::DeleteRecord, "a"),
        Letter::delete_key("the deletion of the key", ADMINISTRATOR),
    ];
    RemoteScope {
        instants_s: &[0, 170],
        transit_s: 170,
        knows_s: Some(DEDUP_S + 170),
        sometimes: &[Sometimes::Replay, Sometimes::Cancelled, Sometimes::Tombstone, Sometimes::OutcomeUnknown],
        ..scope("resend and deleted", Policy::Resend { dedup_s: DEDUP_S }, letters)
    }
}
