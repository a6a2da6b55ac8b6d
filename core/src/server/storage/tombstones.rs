//! Packed tombstones: those of acknowledged requests, many to a row.
//!
//! A tombstone whose end is fixed, since deadlines bound all attempts of its id, needs no row of its own. It is carried by the
//! record of the request that brought the acknowledgement, and goes on to the next when that one is acknowledged itself; or it
//! lies with others in a chunk. So an acknowledgement costs the deletion of its record, and little more.
//!
//! Invariants:
//! - What is packed ran, was acknowledged, and lapses: until then it is in a row, whatever becomes of the record that carries it.
//! - Which ids are packed is known in memory, by a hash of id and principal, and rebuilt from the rows. A record comes before it.
//! - A packed tombstone lapses when it should have, rounded up to ten seconds, and never before.

use super::packed::{self, AHEAD_MS_MAX, Bundle, Entry, GRAIN_MS, Packed, uuid_bytes};
use super::record::{LatestDeadline, Record, State, TOMBSTONE_GRACE_MS, TombstoneKind};
use super::sql::{Row, Sql, SqlError, Value};
use crate::id::{Principal, RequestId};
use crate::problem::Executed;
use crate::rules::{Rule, holds};
use crate::server::uncompared::Uncompared;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A record carries at most so many; those of a request that would carry more go into a chunk.
pub const CARRIED_MAX: usize = 24;
/// Without a record to carry them, fewer than these are rows of their own: to write a chunk and to delete it would cost more.
pub const CHUNK_MIN: usize = 3;
/// So many chunks are looked at in one page, of the sweep or when an object starts.
pub const CHUNKS_MAX: i64 = 128;
/// What stands for an id in memory. As numbers, they are compared at once.
type IdHash = u128;
/// What stands for a principal in memory.
pub type PrincipalHash = u64;

fn hash<const N: usize>(text: impl AsRef<[u8]>) -> [u8; N] {
    let mut hash = [0; N];
    hash.iter_mut().zip(Sha256::digest(text)).for_each(|(to, from)| *to = from);
    hash
}

/// Nobody can choose two ids, or be given two names, for which these are the same.
fn id_hash(id: &RequestId) -> IdHash {
    uuid_bytes(id.as_str()).map_or_else(|| hashed(id.as_str()), of_uuid)
}

/// A UUID stands for itself, if it is as all are that are made as UUIDs: what is hashed has another variant. What no text begins with tells the bytes of others from texts.
fn of_uuid(bytes: [u8; 16]) -> IdHash {
    let uuid = u128::from_be_bytes(bytes);
    if uuid & VARIANT == MADE { uuid } else { hashed([&[0xff][..], &bytes].concat()) }
}

fn hashed(bytes: impl AsRef<[u8]>) -> IdHash {
    u128::from_be_bytes(hash(bytes)) | VARIANT
}

/// The bits of a UUID that tell its variant, and what they are of one that was made as RFC 9562 says.
const VARIANT: u128 = 0b11 << 62;
const MADE: u128 = 0b10 << 62;

/// The same of principals.
pub fn principal_hash(principal: &str) -> PrincipalHash {
    u64::from_be_bytes(hash(principal))
}

/// Which ids are packed. To copy it costs nothing: what a request adds is apart until that is committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Index {
    kept: Arc<Kept>,
    added: Vec<(i64, IdHash, PrincipalHash)>,
    /// What was there of ids, where that may yet have to be put back; `None`: it may not.
    before: Option<Arc<Vec<Before>>>,
}

/// What was there of an id.
type Before = (IdHash, Option<(i64, PrincipalHash)>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Kept {
    /// When each lapses, and whose it is.
    ids: BTreeMap<IdHash, (i64, PrincipalHash)>,
    /// Those that lapse, by when. One that has come to lapse later is still there, and there as well; so may be what was taken back.
    ends: Uncompared<BTreeMap<i64, Vec<IdHash>>>,
}

impl Kept {
    /// Takes one that lapses no sooner than was known. Answers what was known.
    fn keep(&mut self, lapses_10s: i64, id: IdHash, principal: PrincipalHash) -> Option<(i64, PrincipalHash)> {
        let known = self.ids.get(&id).copied();
        if known.is_none_or(|(known_10s, _)| known_10s < lapses_10s) {
            self.ids.insert(id, (lapses_10s, principal));
            self.ends.0.entry(lapses_10s).or_default().push(id);
        }
        known
    }
}

impl Index {
    /// Adds a tombstone that was packed.
    pub fn add(&mut self, principal: PrincipalHash, packed: &Packed) {
        self.added.push((packed.lapses_10s, id_hash(&packed.id), principal));
    }

    /// What is taken over or lapses from now on may have to be taken back: a copy of all would cost the more, the more there is.
    pub fn begin(&mut self) {
        self.before = Some(Arc::default());
    }

    /// What was taken over since stays, and what has lapsed is gone.
    pub fn keep(&mut self) {
        self.before = None;
    }

    /// Takes back what was taken over since, and what has lapsed.
    pub fn take_back(&mut self) {
        self.added.clear();
        let before = self.before.take().unwrap_or_default();
        if before.is_empty() {
            return;
        }
        let kept = Arc::make_mut(&mut self.kept);
        for (id, known) in before.iter().rev() {
            match known {
                Some(known) => {
                    kept.ids.insert(*id, *known);
                    kept.ends.0.entry(known.0).or_default().push(*id);
                }
                None => {
                    kept.ids.remove(id);
                }
            }
        }
    }

    /// Takes over what was added, and drops what has lapsed. Answers how many more there are.
    pub fn settle(&mut self, now_ms: i64) -> i64 {
        let has_lapsed =
            |lapses_10s: &i64| lapses_10s.saturating_mul(GRAIN_MS) <= now_ms || !holds(Rule::TombstoneStays);
        if self.added.is_empty() && !self.kept.ends.0.keys().next().is_some_and(has_lapsed) {
            return 0;
        }
        let mut more = 0;
        let kept = Arc::make_mut(&mut self.kept);
        for (lapses_10s, id, principal) in self.added.drain(..) {
            let known = kept.keep(lapses_10s, id, principal);
            more += i64::from(known.is_none());
            self.before.iter_mut().for_each(|before| Arc::make_mut(before).push((id, known)));
        }
        while let Some(first) = kept.ends.0.first_entry().filter(|first| has_lapsed(first.key())) {
            let lapsed_10s = *first.key();
            for id in first.remove() {
                if let Some(known) = kept.ids.get(&id).copied().filter(|(lapses_10s, _)| *lapses_10s == lapsed_10s) {
                    kept.ids.remove(&id);
                    more -= 1;
                    self.before.iter_mut().for_each(|before| Arc::make_mut(before).push((id, Some(known))));
                }
            }
        }
        more
    }

    /// The tombstone of an id, as one who asks is to see it: another's principal is not told.
    pub fn find(&self, id: &RequestId, asks: &Principal, first_sent_s: Option<i64>, now_ms: i64) -> Option<Record> {
        if self.kept.ids.is_empty() && self.added.is_empty() {
            return None;
        }
        let id = id_hash(id);
        let kept = self.kept.ids.get(&id).copied();
        let added = || self.added.iter().find(|added| added.1 == id).map(|added| (added.0, added.2));
        let (lapses_10s, owner) = kept.or_else(added)?;
        let lapses_ms = lapses_10s * GRAIN_MS;
        let principal = if owner == principal_hash(asks.as_str()) { asks.clone() } else { Principal::another() };
        Some(Record {
            principal,
            // Deadlines bound all that came before, so only what comes now counts.
            first_sent_s,
            at_ms: now_ms,
            deadline: LatestDeadline::At(lapses_ms - TOMBSTONE_GRACE_MS),
            state: State::Tombstone { kind: TombstoneKind::Acknowledged, executed: Executed::Yes, lapses_ms },
            carried: Bundle::default(),
        })
    }

    /// How many there are, but for what was added and is not settled.
    pub fn count(&self) -> i64 {
        self.kept.ids.len() as i64
    }

    /// When the last of them lapses.
    pub fn until_ms(&self) -> i64 {
        self.kept.ends.0.last_key_value().map_or(0, |(lapses_10s, _)| lapses_10s.saturating_mul(GRAIN_MS))
    }

    /// Reads what is carried by records with ids after `after`, up to `last`.
    pub fn read_carried(&mut self, sql: &dyn Sql, after: &str, last: &str) -> Result<(), SqlError> {
        let statement = format!(
            "SELECT id, {}, carried FROM semel_records WHERE id > ?1 AND id <= ?2 AND carried IS NOT NULL",
            super::rows::PRINCIPAL
        );
        self.read(sql.exec(&statement, &[after.into(), last.into()])?).map(|_| ())
    }

    /// Reads a page of chunks after `after`, but for what has lapsed by now. The last of them, where there may be more.
    pub fn read_chunks(&mut self, sql: &dyn Sql, after: i64, now_ms: i64) -> Result<Option<i64>, SqlError> {
        let statement = "SELECT chunk, principal, entries FROM semel_tombstones WHERE chunk > ?1 AND lapses_ms > ?3 \
             ORDER BY chunk LIMIT +?2";
        let rows = sql.exec(statement, &[after.into(), CHUNKS_MAX.into(), now_ms.into()])?;
        let is_last = (rows.len() as i64) < CHUNKS_MAX;
        let last = self.read(rows)?.and_then(|last| last.as_integer());
        Ok(last.filter(|_| !is_last))
    }

    /// Reads rows: each has its place, a principal, and what is packed. Answers the last place.
    fn read(&mut self, rows: Vec<Row>) -> Result<Option<Value>, SqlError> {
        let mut last = None;
        for row in rows {
            let [place, principal, entries] = <[Value; 3]>::try_from(row).map_err(|_| unreadable())?;
            let (principal, entries) = principal.into_text().zip(entries.into_blob()).ok_or_else(unreadable)?;
            let principal = principal_hash(&principal);
            for entry in packed::entries(&entries) {
                let Entry { lapses_10s, is_uuid, id, .. } = entry.ok_or_else(unreadable)?;
                let id = id.try_into().ok().filter(|_| is_uuid).map_or_else(|| hashed(id), of_uuid);
                if holds(Rule::PackedKnown) {
                    self.added.push((lapses_10s, id, principal));
                }
            }
            last = Some(place);
        }
        Ok(last)
    }
}

/// What chunks come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// When the first may leave; [`i64::MAX`]: there is none.
    pub due_ms: i64,
    /// The clock of the latest, in Unix ms.
    pub clock_ms: i64,
}

/// Looks at the first chunk and the last: they are in the order in which they came, and leave in it.
pub fn ends(sql: &dyn Sql) -> Result<Ends, SqlError> {
    let statement = "SELECT lapses_ms, (SELECT at_ms FROM semel_tombstones ORDER BY chunk DESC LIMIT 1) \
         FROM semel_tombstones ORDER BY chunk LIMIT 1";
    let rows = sql.exec(statement, &[])?;
    let Some(row) = rows.first() else { return Ok(Ends { due_ms: i64::MAX, clock_ms: 0 }) };
    let integer = |column: usize| row.get(column).and_then(Value::as_integer).ok_or_else(unreadable);
    Ok(Ends { due_ms: integer(0)?, clock_ms: integer(1)? })
}

/// Writes tombstones of one principal as a chunk, if there are any. Answers when it lapses.
pub fn put_chunk(sql: &dyn Sql, principal: &Principal, packed: &Bundle, now_ms: i64) -> Result<Option<i64>, SqlError> {
    let Some(lapses_ms) = packed.lapses_ms() else { return Ok(None) };
    let statement = "INSERT INTO semel_tombstones (at_ms, lapses_ms, principal, entries) VALUES (?1, ?2, ?3, ?4)";
    let entries = packed.as_bytes().into();
    sql.exec(statement, &[now_ms.into(), lapses_ms.into(), principal.as_str().into(), entries])?;
    Ok(Some(lapses_ms))
}

/// Writes what records carry as chunks of its own, so that the records can go. These lapse as late as any may.
pub fn put_carried(sql: &dyn Sql, now_ms: i64) -> Result<(), SqlError> {
    let statement = format!(
        "INSERT INTO semel_tombstones (at_ms, lapses_ms, principal, entries) \
         SELECT ?1, ?2, {}, carried FROM semel_records WHERE carried IS NOT NULL",
        super::rows::PRINCIPAL
    );
    sql.exec(&statement, &[now_ms.into(), (now_ms + AHEAD_MS_MAX + GRAIN_MS).into()]).map(|_| ())
}

/// What became of a page of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Whether any left.
    pub any: bool,
    /// When the next may, in Unix ms; [`i64::MAX`]: there is none.
    pub next_due_ms: i64,
}

/// Deletes chunks that have lapsed, from the oldest on. None keeps those behind it for longer than [`AHEAD_MS_MAX`].
pub fn drop_lapsed(sql: &dyn Sql, now_ms: i64) -> Result<Dropped, SqlError> {
    let statement = "SELECT chunk, lapses_ms FROM semel_tombstones ORDER BY chunk LIMIT +?1";
    let rows = sql.exec(statement, &[CHUNKS_MAX.into()])?;
    let is_all = (rows.len() as i64) < CHUNKS_MAX;
    let mut last = None;
    // Behind a full page of lapsed chunks there may be more, due at once.
    let mut next_due_ms = if is_all { i64::MAX } else { 0 };
    for row in rows {
        let place = (row.first().and_then(Value::as_integer), row.get(1).and_then(Value::as_integer));
        let (Some(chunk), Some(lapses_ms)) = place else { return Err(unreadable()) };
        if lapses_ms > now_ms {
            next_due_ms = lapses_ms;
            break;
        }
        last = Some(chunk);
    }
    if let Some(last) = last {
        sql.exec("DELETE FROM semel_tombstones WHERE chunk <= ?1", &[last.into()])?;
    }
    Ok(Dropped { any: last.is_some(), next_due_ms })
}

fn unreadable() -> SqlError {
    SqlError("packed tombstones are unreadable".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid_of(bytes: [u8; 16]) -> RequestId {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        RequestId::new(parts.join("-")).expect("an id")
    }

    #[test]
    fn no_uuid_can_be_made_that_stands_for_another_id() {
        let text = RequestId::new("order-1001").expect("an id");
        // As it is hashed, and with each variant.
        for bits in 0..=3_u128 {
            let wanted = id_hash(&text) & !VARIANT | bits << 62;
            assert_ne!(id_hash(&uuid_of(wanted.to_be_bytes())), id_hash(&text), "{bits}");
        }
        assert_ne!(id_hash(&uuid_of(hash(text.as_str()))), id_hash(&text));
        let letters = RequestId::new("abcdefghijklmnop").expect("an id");
        assert_ne!(id_hash(&uuid_of(*b"abcdefghijklmnop")), id_hash(&letters));
    }
}
