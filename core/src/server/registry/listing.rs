//! `GET admin/keys`: the keys of all shards as one list, in pages.
//!
//! Invariants:
//! - Each shard gives one key more than the page may have, so the first keys of all shards together are the first of the list.
//! - The order is total: keys with equal numbers are in the order of their names. So a page begins where the last one
//!   ended, whatever was added meanwhile.

use crate::id::Invalid;
use crate::message::Response;
use crate::server::control::admin::Query;
use crate::server::json::write::{self, Object, Written};
use crate::server::storage::sql::{Row, Value};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use std::cmp::Reverse;

const LIMIT_DEFAULT: i64 = 50;
const LIMIT_MAX: i64 = 200;

/// The order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The latest registration first.
    Newest,
    /// The largest database first.
    Heaviest,
    /// By name.
    Name,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The order.
    pub order: Order,
    /// The list begins after the key with this number and name.
    pub after: Option<(i64, String)>,
    /// The most keys to return.
    pub limit: usize,
    /// Only keys whose names begin with this.
    pub prefix: String,
    /// Only keys that have some of these.
    pub few: Option<Few>,
}

/// Something that few keys have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Few {
    /// Records in doubt.
    InDoubt,
    /// Effects that were refused for good.
    Parked,
}

impl Few {
    /// The table and the column of a shard that hold it.
    pub(super) fn stored(self) -> (&'static str, &'static str) {
        match self {
            Self::InDoubt => ("doubts", "in_doubt"),
            Self::Parked => ("refusals", "parked"),
        }
    }
}

/// A key, as it last reported itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key, decoded.
    pub key: String,
    /// When it registered, in Unix ms.
    pub created: i64,
    /// When it last reported, by its own clock, in Unix ms.
    pub seen: i64,
    /// The number of its unacknowledged records.
    pub records: i64,
    /// The number of its tombstones.
    pub tombstones: i64,
    /// The size of its database, in bytes.
    pub bytes: i64,
    /// When its oldest row was last changed, in Unix ms.
    pub oldest: Option<i64>,
    /// How many of its records are in doubt.
    pub in_doubt: i64,
    /// How many of its effects were refused for good.
    pub parked: i64,
}

/// One shard's part of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its first keys, one more than the page may have.
    pub keys: Vec<Entry>,
    /// How many keys it has with that prefix.
    pub total: i64,
}

impl Entry {
    /// Reads a row of a shard; `None` if it can't be read.
    pub fn from_row(row: Row) -> Option<Self> {
        let [key, created, seen, records, tombstones, bytes, oldest, in_doubt, parked] =
            <[Value; 9]>::try_from(row).ok()?;
        Some(Self {
            key: key.into_text()?,
            created: created.as_integer()?,
            seen: seen.as_integer()?,
            records: records.as_integer()?,
            tombstones: tombstones.as_integer()?,
            bytes: bytes.as_integer()?,
            oldest: oldest.as_integer(),
            in_doubt: in_doubt.as_integer()?,
            parked: parked.as_integer()?,
        })
    }

    fn written(&self) -> Written {
        Object::default()
            .with("key", self.key.as_str())
            .with("created", self.created)
            .with("seen", self.seen)
            .with("records", self.records)
            .with("tombstones", self.tombstones)
            .with("inDoubt", self.in_doubt)
            .with("parked", self.parked)
            .with("bytes", self.bytes)
            .with("oldest", self.oldest)
            .end()
    }
}

impl Page {
    /// Reads what a shard's object returned: how many keys there are, and the rows.
    pub fn from_rows(total: i64, rows: Vec<Row>) -> Option<Self> {
        Some(Self { keys: rows.into_iter().map(Entry::from_row).collect::<Option<_>>()?, total })
    }
}

impl Listing {
    /// Reads a path with its query.
    pub fn parse(path: &str) -> Result<Self, Invalid> {
        let mut query = Query::of(path)?;
        let order = match query.take("order").as_deref() {
            None | Some("newest") => Order::Newest,
            Some("heaviest") => Order::Heaviest,
            Some("name") => Order::Name,
            Some(_) => return Err(Invalid::new("order is newest, heaviest or name")),
        };
        let cursor = |text: String| place(&text).ok_or_else(|| Invalid::new("after is no cursor"));
        let after = query.take("after").map(cursor).transpose()?;
        let limit = query.integer("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT) as usize;
        let prefix = query.take("prefix").unwrap_or_default();
        let few = match query.take("state").as_deref() {
            None => None,
            Some("in-doubt") => Some(Few::InDoubt),
            Some("parked") => Some(Few::Parked),
            Some(_) => return Err(Invalid::new("state is in-doubt or parked")),
        };
        query.end()?;
        Ok(Self { order, after, limit, prefix, few })
    }

    /// The number that decides the place of a key.
    fn number_of(&self, entry: &Entry) -> i64 {
        match self.order {
            Order::Newest => entry.created,
            Order::Heaviest => entry.bytes,
            Order::Name => 0,
        }
    }
}

/// Reads a cursor; `None` if it is malformed.
fn place(cursor: &str) -> Option<(i64, String)> {
    let place = String::from_utf8(BASE64.decode(cursor).ok()?).ok()?;
    let (number, key) = place.split_once(' ')?;
    Some((number.parse().ok()?, key.to_owned()))
}

/// The list, from what all shards returned.
pub fn merged(listing: &Listing, pages: Vec<Page>) -> Response {
    let total: i64 = pages.iter().map(|page| page.total).sum();
    let mut keys: Vec<Entry> = pages.into_iter().flat_map(|page| page.keys).collect();
    // Each key is in only one shard, so none is in the list twice.
    keys.sort_unstable_by(|one, other| {
        (Reverse(listing.number_of(one)), &one.key).cmp(&(Reverse(listing.number_of(other)), &other.key))
    });
    let goes_on = keys.len() > listing.limit;
    keys.truncate(listing.limit);
    let last = keys.last().filter(|_| goes_on);
    let next = last.map(|last| BASE64.encode(format!("{} {}", listing.number_of(last), last.key)));
    let keys = write::array(keys.iter().map(Entry::written));
    let listed = Object::default().with("keys", keys).with("next", next.as_deref()).with("total", total);
    let mut response = Response::json(200, listed.end());
    response.headers.append("cache-control", "no-store");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_a_listing_is_parsed_and_an_invalid_one_is_refused() {
        let listing = Listing::parse("/semel/v1/admin/keys?order=heaviest&limit=7&prefix=caf%C3%A9+a").unwrap();
        assert_eq!((listing.order, listing.limit, listing.prefix.as_str()), (Order::Heaviest, 7, "caf\u{e9} a"));
        assert_eq!(Listing::parse("/semel/v1/admin/keys").unwrap().limit as i64, LIMIT_DEFAULT);
        for bad in [
            "order=oldest",
            "limit=0",
            "limit=201",
            "limit=x",
            "limit",
            "limit=1&limit=2",
            "after",
            "after=%21",
            "after=bm90",
            "prefix=%ff",
            "prefix=a&prefix=b",
            "state=executed",
            "state",
            "page=2",
            "page",
        ] {
            assert!(Listing::parse(&format!("/semel/v1/admin/keys?{bad}")).is_err(), "{bad}");
        }
    }
}
