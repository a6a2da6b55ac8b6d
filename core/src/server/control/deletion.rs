//! What an administrator deletes: a record, or all of a key. It is part of the transaction of the request that asks for it.
//!
//! Invariants:
//! - An id that ran stays refused: by its tombstone, which may be packed, or, when all of the key goes, by the fence, if
//!   the client said when the request was first sent.
//! - The commit removes what is deleted: outcome and fingerprint of a record; every row and table of a key except the
//!   layer's own. Packed tombstones, with their ids and principals, go last, when they lapse.
//! - The fence of a deletion refuses whatever it must, even ahead of the clock. What comes after the deletion lives as long as usual.

use super::admin::{executed_of, state_of};
use crate::id::RequestId;
use crate::message::Response;
use crate::problem::{Code, Executed, Problem};
use crate::rules::{Rule, holds};
use crate::server::attempt::suspicion::Own;
use crate::server::attempt::turn::Work;
use crate::server::handler::Undone;
use crate::server::json::write::Object;
use crate::server::storage::record::{Change, LatestDeadline, Record, State, TombstoneKind};
use crate::server::storage::retention::Sweep;
use crate::server::storage::rows;
use crate::server::storage::schema;
use crate::server::storage::sessions::{self, sweep::Sessions};
use crate::server::storage::sql::{Sql, SqlError, Value};
use crate::server::storage::survey;

/// The record that remains of a deleted one; `None` if there is nothing to delete in it.
///
/// It remains as one whose outcome expired. Its client may still send, with any deadline, so only the fence bounds the
/// attempts that may arrive.
pub fn deleted(record: &Record, now_ms: i64, retention_s: i64) -> Option<Record> {
    let expired = |executed| {
        let lapses_ms = now_ms + retention_s * 1000;
        (LatestDeadline::None, State::Tombstone { kind: TombstoneKind::Expired, executed, lapses_ms })
    };
    let (deadline, state) = match record.state {
        State::Executed(..) => expired(Executed::Yes),
        State::Poisoned(_) => expired(Executed::No),
        State::Dispatched { .. } => expired(Executed::Unknown),
        State::Suspect { .. } => (record.deadline, State::Cancelled { lapses_ms: None }),
        State::Cancelled { .. } | State::Tombstone { .. } => return None,
    };
    Some(Record { at_ms: now_ms, deadline, state, ..record.clone() })
}

/// Deletes the record of an id.
pub(in crate::server) fn delete_record(
    work: &mut Work<'_>,
    id: &RequestId,
    retention_s: i64,
) -> Result<Response, Undone> {
    let packed = || work.after.packed.find(id, work.principal, None, work.instant.now_ms);
    let Some(found) = rows::find_bare(work.sql, id)?.or_else(packed) else {
        return Err(Undone::Problem(Problem::new(Code::NotSeen, "this key has no record of this id")));
    };
    let left = match deleted(&found, work.instant.now_ms, retention_s) {
        Some(left) if holds(Rule::DeletedRecordStaysRefused) => {
            work.put(id, Some(&found), &left)?;
            left
        }
        Some(left) => {
            rows::delete(work.sql, id)?;
            work.after.count.left(&found);
            left
        }
        None => found,
    };
    let body = Object::default().with("state", state_of(&left)).with("executed", executed_of(&left).as_str());
    Ok(Response::json(200, body.end()))
}

/// Deletes all of the key.
pub(in crate::server) fn delete_key(work: &mut Work<'_>) -> Result<Response, Undone> {
    let now_ms = work.instant.now_ms;
    // A client's clock may be ahead, so the fence also refuses what such a client has first sent.
    let first_free_s = survey::latest_first_sent_s(work.sql)?.map_or(0, |latest_s| latest_s + 1);
    let fence_s = now_ms.saturating_add(999).div_euclid(1000).max(first_free_s).max(work.after.fence_s);
    // Not past the clock: otherwise whatever comes from now on would count as forgotten, and leave.
    let forgotten_s = now_ms.div_euclid(1000).max(work.after.forgotten_s);
    survey::clear(work.sql, now_ms)?;
    sessions::rows::clear(work.sql)?;
    drop_tables(work.sql)?;
    schema::put_forgotten(work.sql, forgotten_s, fence_s, now_ms)?;
    // The registry may list the key even if its answer never came. With this, it will be told not to.
    schema::put_registered(work.sql, true)?;
    work.after.is_registered = true;
    work.after.fence_s = fence_s;
    work.after.forgotten_s = forgotten_s;
    work.after.count = Change { tombstones: work.after.packed.count(), ..Change::default() };
    work.after.sweep = Sweep::default();
    work.after.started = Own::default();
    // The highest epoch stays, so that no earlier holder of a session becomes a holder again.
    work.after.sessions = Sessions::before(work.after.sessions.epoch);
    Ok(Response::json(200, Object::default().with("state", "deleted").with("fence", fence_s).end()))
}

/// Marks the key as deleted, after the deletion's own record was written: the next row after it has the key listed again.
pub(in crate::server) fn mark(work: &mut Work<'_>) -> Result<(), SqlError> {
    work.after.versions.handler = schema::DELETED;
    schema::put_handler_version(work.sql, schema::DELETED)
}

/// Drops every table and view except those of the layer, of the platform and of SQLite.
fn drop_tables(sql: &dyn Sql) -> Result<(), SqlError> {
    // While tables are dropped, foreign keys may refer to missing rows; in the end, both sides are gone.
    sql.exec("PRAGMA defer_foreign_keys = ON", &[])?;
    // Virtual tables come first: each drops its shadow tables, which can't be dropped alone. Then the newest come first,
    // so that a table goes before those that it refers to.
    for condition in ["sql LIKE 'CREATE VIRTUAL %'", "type IN ('table', 'view')"] {
        let statement = format!("SELECT type, name FROM sqlite_master WHERE {condition} ORDER BY rowid DESC");
        for row in sql.exec(&statement, &[])? {
            let [kind, name] = <[Value; 2]>::try_from(row).map_err(|_| unreadable())?;
            let (kind, name) = kind.into_text().zip(name.into_text()).ok_or_else(unreadable)?;
            // Effects that still wait are dropped too, and so are a handler's tables that have names like the layer's.
            let is_kept = schema::makes(&name) || ["sqlite_", "_cf_"].iter().any(|prefix| name.starts_with(prefix));
            if !is_kept {
                sql.exec(&format!("DROP {kind} IF EXISTS \"{}\"", name.replace('"', "\"\"")), &[])?;
            }
        }
    }
    Ok(())
}

fn unreadable() -> SqlError {
    SqlError("sqlite_master is unreadable".to_owned())
}
