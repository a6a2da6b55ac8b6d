//! Packed tombstones: the tombstones of acknowledged requests, many to a row.
//!
//! A tombstone needs no row of its own if its end is fixed, which is so when deadlines bound all attempts of its id. The
//! record of the request that brought the acknowledgement carries it. When that record is acknowledged in turn, the next
//! one carries it on. Otherwise it is stored with others in a chunk. So an acknowledgement costs the deletion of its
//! record and little more.
//!
//! Invariants:
//! - The request of a packed tombstone ran and was acknowledged. The tombstone stays in a row until it lapses, even if
//!   the record that carries it leaves.
//! - Memory knows which ids are packed, by a hash of id and principal, and rebuilds that from the rows. A record takes
//!   precedence over a packed tombstone.
//! - A packed tombstone never lapses early. It lapses at its time, rounded up to ten seconds.

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

/// The most tombstones that a record carries; those of a request that would carry more go into a chunk.
pub const CARRIED_MAX: usize = 24;
/// With no record to carry them, fewer tombstones than this get their own rows: writing and deleting a chunk would cost more.
pub const CHUNK_MIN: usize = 3;
/// The most chunks that one page reads, in a sweep or when an object starts.
pub const CHUNKS_MAX: i64 = 128;
/// Stands for an id in memory. Numbers can be compared in one step.
type IdHash = u128;
/// Stands for a principal in memory.
pub type PrincipalHash = u64;

fn hash<const N: usize>(text: impl AsRef<[u8]>) -> [u8; N] {
    let mut hash = [0; N];
    hash.iter_mut().zip(Sha256::digest(text)).for_each(|(to, from)| *to = from);
    hash
}

/// Hashes an id. Nobody can find two ids with the same hash.
fn id_hash(id: &RequestId) -> IdHash {
    uuid_bytes(id.as_str()).map_or_else(|| hashed(id.as_str()), of_uuid)
}

/// The hash of a UUID. A UUID of the RFC's variant stands for itself; hashes of other ids have another variant. The bytes
/// of any other UUID are hashed behind a byte with which no text begins, so that they differ from a text.
fn of_uuid(bytes: [u8; 16]) -> IdHash {
    let uuid = u128::from_be_bytes(bytes);
    if uuid & VARIANT == MADE { uuid } else { hashed([&[0xff][..], &bytes].concat()) }
}

fn hashed(bytes: impl AsRef<[u8]>) -> IdHash {
    u128::from_be_bytes(hash(bytes)) | VARIANT
}

/// The bits of a UUID that hold its variant, and their value in a UUID made by RFC 9562.
const VARIANT: u128 = 0b11 << 62;
const MADE: u128 = 0b10 << 62;

/// Hashes the name of a principal. Nobody can choose two names, or be given them, that have the same hash.
pub fn principal_hash(principal: &str) -> PrincipalHash {
    u64::from_be_bytes(hash(principal))
}

/// Knows which ids are packed. Cloning it is cheap: what a request adds is kept apart until it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Index {
    kept: Arc<Kept>,
    added: Vec<(i64, IdHash, PrincipalHash)>,
    /// The earlier entries of ids, while they may have to be put back; `None` if they need not be.
    before: Option<Arc<Vec<Before>>>,
}

/// The earlier entry of an id; `None` if it had none.
type Before = (IdHash, Option<(i64, PrincipalHash)>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Kept {
    /// For each id, when its tombstone lapses, and its principal's hash.
    ids: BTreeMap<IdHash, (i64, PrincipalHash)>,
    /// The ids by when they lapse. An id that now lapses later is also still listed at its earlier time; one that was
    /// taken back may be listed too.
    ends: Uncompared<BTreeMap<i64, Vec<IdHash>>>,
}

impl Kept {
    /// Adds an id unless it is known to lapse no sooner. Returns the earlier entry.
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
    /// Adds a packed tombstone.
    pub fn add(&mut self, principal: PrincipalHash, packed: &Packed) {
        self.added.push((packed.lapses_10s, id_hash(&packed.id), principal));
    }

    /// Begins to note what is taken over or lapses, so that it can be taken back. A copy of the whole index would cost
    /// more, the larger it is.
    pub fn begin(&mut self) {
        self.before = Some(Arc::default());
    }

    /// Keeps all that was taken over and dropped since [`Index::begin`].
    pub fn keep(&mut self) {
        self.before = None;
    }

    /// Takes back all that was taken over and dropped since [`Index::begin`].
    pub fn take_back(&mut self) {
        self.added.clear();
        let before = self.before.take().unwrap_or_default();
        // Most often there is nothing to take back, and the index need not be copied.
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

    /// Takes over what was added and drops what has lapsed. Returns by how many the number of ids has grown, which may be negative.
    pub fn settle(&mut self, now_ms: i64) -> i64 {
        let has_lapsed =
            |lapses_10s: &i64| lapses_10s.saturating_mul(GRAIN_MS) <= now_ms || !holds(Rule::TombstoneStays);
        // As above: nothing changes, and nothing need be copied.
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

    /// The tombstone of an id as `asks` may see it. If it belongs to another principal, the record has
    /// [`Principal::another`] as its principal.
    pub fn find(&self, id: &RequestId, asks: &Principal, first_sent_s: Option<i64>, now_ms: i64) -> Option<Record> {
        // At many keys nothing is packed, and no id need be hashed.
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
            // Deadlines bound all earlier attempts, so only this attempt's first-sent counts.
            first_sent_s,
            at_ms: now_ms,
            deadline: LatestDeadline::At(lapses_ms - TOMBSTONE_GRACE_MS),
            state: State::Tombstone { kind: TombstoneKind::Acknowledged, executed: Executed::Yes, lapses_ms },
            carried: Bundle::default(),
        })
    }

    /// How many ids are packed, without those that were added and are not settled.
    pub fn count(&self) -> i64 {
        self.kept.ids.len() as i64
    }

    /// When the last of them lapses, in Unix ms.
    pub fn until_ms(&self) -> i64 {
        self.kept.ends.0.last_key_value().map_or(0, |(lapses_10s, _)| lapses_10s.saturating_mul(GRAIN_MS))
    }

    /// Reads the tombstones that are carried by records with ids after `after`, up to and including `last`.
    pub fn read_carried(&mut self, sql: &dyn Sql, after: &str, last: &str) -> Result<(), SqlError> {
        let statement = format!(
            "SELECT id, {}, carried FROM semel_records WHERE id > ?1 AND id <= ?2 AND carried IS NOT NULL",
            super::rows::PRINCIPAL
        );
        self.read(sql.exec(&statement, &[after.into(), last.into()])?).map(|_| ())
    }

    /// Reads one page of chunks after `after` that have not lapsed. Returns the last chunk read if there may be more.
    pub fn read_chunks(&mut self, sql: &dyn Sql, after: i64, now_ms: i64) -> Result<Option<i64>, SqlError> {
        let statement = "SELECT chunk, principal, entries FROM semel_tombstones WHERE chunk > ?1 AND lapses_ms > ?3 \
             ORDER BY chunk LIMIT +?2";
        let rows = sql.exec(statement, &[after.into(), CHUNKS_MAX.into(), now_ms.into()])?;
        let is_last = (rows.len() as i64) < CHUNKS_MAX;
        let last = self.read(rows)?.and_then(|last| last.as_integer());
        Ok(last.filter(|_| !is_last))
    }

    /// Reads rows of a place, a principal and packed tombstones each. Returns the last place.
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

/// What the chunks of a key say about time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// When the first chunk may leave, in Unix ms; [`i64::MAX`] if there is none.
    pub due_ms: i64,
    /// The key's clock when the last chunk was written, in Unix ms.
    pub clock_ms: i64,
}

/// Looks at the first and the last chunk. Chunks leave in the order in which they came.
pub fn ends(sql: &dyn Sql) -> Result<Ends, SqlError> {
    let statement = "SELECT lapses_ms, (SELECT at_ms FROM semel_tombstones ORDER BY chunk DESC LIMIT 1) \
         FROM semel_tombstones ORDER BY chunk LIMIT 1";
    let rows = sql.exec(statement, &[])?;
    let Some(row) = rows.first() else { return Ok(Ends { due_ms: i64::MAX, clock_ms: 0 }) };
    let integer = |column: usize| row.get(column).and_then(Value::as_integer).ok_or_else(unreadable);
    Ok(Ends { due_ms: integer(0)?, clock_ms: integer(1)? })
}

/// Writes the tombstones of one principal as a chunk, if there are any. Returns when the chunk lapses, in Unix ms.
pub fn put_chunk(sql: &dyn Sql, principal: &Principal, packed: &Bundle, now_ms: i64) -> Result<Option<i64>, SqlError> {
    let Some(lapses_ms) = packed.lapses_ms() else { return Ok(None) };
    let statement = "INSERT INTO semel_tombstones (at_ms, lapses_ms, principal, entries) VALUES (?1, ?2, ?3, ?4)";
    let entries = packed.as_bytes().into();
    sql.exec(statement, &[now_ms.into(), lapses_ms.into(), principal.as_str().into(), entries])?;
    Ok(Some(lapses_ms))
}

/// Copies what all records carry into chunks, so that the records can be deleted. These chunks lapse as late as any tombstone may.
pub fn put_carried(sql: &dyn Sql, now_ms: i64) -> Result<(), SqlError> {
    let statement = format!(
        "INSERT INTO semel_tombstones (at_ms, lapses_ms, principal, entries) \
         SELECT ?1, ?2, {}, carried FROM semel_records WHERE carried IS NOT NULL",
        super::rows::PRINCIPAL
    );
    sql.exec(&statement, &[now_ms.into(), (now_ms + AHEAD_MS_MAX + GRAIN_MS).into()]).map(|_| ())
}

/// What happened to a page of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Whether any chunk was deleted.
    pub any: bool,
    /// When the next chunk may leave, in Unix ms; [`i64::MAX`] if there is none.
    pub next_due_ms: i64,
}

/// Deletes chunks that have lapsed, from the oldest on. A chunk delays those behind it by at most [`AHEAD_MS_MAX`].
pub fn drop_lapsed(sql: &dyn Sql, now_ms: i64) -> Result<Dropped, SqlError> {
    let statement = "SELECT chunk, lapses_ms FROM semel_tombstones ORDER BY chunk LIMIT +?1";
    let rows = sql.exec(statement, &[CHUNKS_MAX.into()])?;
    let is_all = (rows.len() as i64) < CHUNKS_MAX;
    let mut last = None;
    // After a full page of lapsed chunks there may be more, so the next page is due at once.
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
    fn a_crafted_uuid_does_not_have_the_hash_of_another_id() {
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
