//! The bytes of packed tombstones, in whichever row they are stored: see [`super::tombstones`].
//!
//! Invariant: a packed tombstone never lapses early. It lapses at its time, rounded up to ten seconds.

use crate::id::RequestId;

/// A tombstone that lapses later than this from now, in ms, gets its own row. Only a mistaken client's deadline is so far ahead.
pub(super) const AHEAD_MS_MAX: i64 = 600_000;
/// The unit in which the end of a tombstone is stored, in ms, rounded up.
pub(super) const GRAIN_MS: i64 = 10_000;

/// One packed tombstone. Its row says which principal it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Packed {
    /// The id that must not run.
    pub id: RequestId,
    /// When it may leave, in units of ten seconds.
    pub(super) lapses_10s: i64,
}

impl Packed {
    /// The tombstone of an id that may leave at `lapses_ms`; `None` if that is too far ahead of now.
    pub(super) fn new(id: &RequestId, lapses_ms: i64, now_ms: i64) -> Option<Self> {
        if lapses_ms > now_ms.saturating_add(AHEAD_MS_MAX) {
            return None;
        }
        let lapses_10s = lapses_ms.max(0).saturating_add(GRAIN_MS - 1) / GRAIN_MS;
        u32::try_from(lapses_10s).is_ok().then(|| Self { id: id.clone(), lapses_10s })
    }

    /// When it may leave, in Unix ms.
    pub fn lapses_ms(&self) -> i64 {
        self.lapses_10s * GRAIN_MS
    }

    /// Whether it has not lapsed yet.
    pub fn lasts(&self, now_ms: i64) -> bool {
        self.lapses_ms() > now_ms
    }
}

/// Packed tombstones as stored bytes. Each has four bytes for the time at which it lapses, one byte for the length of the
/// id, and the id. A UUID has the length 0 and is stored as its 16 bytes. They stay bytes in memory, because they are
/// handed on many times before anybody asks for their ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bundle(Vec<u8>);

impl Bundle {
    /// Takes bytes; `None` if they are not a valid bundle.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let is_id = |entry: Entry<'_>| entry.is_uuid || entry.id.iter().all(is_printable);
        let is_whole = entries(&bytes).all(|entry| entry.is_some_and(is_id));
        is_whole.then_some(Self(bytes))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds a tombstone.
    pub fn push(&mut self, Packed { id, lapses_10s }: &Packed) {
        // Most ids are UUIDs.
        self.0.reserve(UUID_ENTRY_BYTES);
        self.0.extend(u32::try_from(*lapses_10s).unwrap_or(u32::MAX).to_be_bytes());
        match uuid_bytes(id.as_str()) {
            Some(uuid) => {
                self.0.push(0);
                self.0.extend(uuid);
            }
            None => {
                self.0.push(u8::try_from(id.as_str().len()).unwrap_or(u8::MAX));
                self.0.extend(id.as_str().as_bytes());
            }
        }
    }

    /// Adds the tombstones of another bundle.
    pub fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Those that have not lapsed yet.
    pub fn lasting(&self, now_ms: i64) -> Self {
        let mut bytes = Vec::with_capacity(self.0.len());
        let lasting = entries(&self.0).flatten().filter(|entry| entry.lapses_ms() > now_ms);
        lasting.for_each(|entry| bytes.extend_from_slice(entry.whole));
        Self(bytes)
    }

    /// How many tombstones there are.
    pub fn len(&self) -> usize {
        entries(&self.0).count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the last of them lapses, in Unix ms; `None` if there are none.
    pub fn lapses_ms(&self) -> Option<i64> {
        entries(&self.0).flatten().map(|entry| entry.lapses_ms()).max()
    }
}

impl<'a> FromIterator<&'a Packed> for Bundle {
    fn from_iter<T: IntoIterator<Item = &'a Packed>>(packed: T) -> Self {
        let mut bundle = Self::default();
        packed.into_iter().for_each(|each| bundle.push(each));
        bundle
    }
}

/// How many tombstones of a bundle have not lapsed yet; `None` if the bytes are unreadable.
pub fn count_lasting(bytes: &[u8], now_ms: i64) -> Option<i64> {
    entries(bytes).map(|entry| Some(i64::from(entry?.lapses_ms() > now_ms))).sum()
}

/// As [`RequestId::new`] checks it.
fn is_printable(byte: &u8) -> bool {
    (0x20..0x7f).contains(byte)
}

/// One tombstone in a bundle.
pub(super) struct Entry<'a> {
    pub lapses_10s: i64,
    pub is_uuid: bool,
    pub id: &'a [u8],
    whole: &'a [u8],
}

impl Entry<'_> {
    fn lapses_ms(&self) -> i64 {
        self.lapses_10s * GRAIN_MS
    }
}

/// The entries of a bundle. If some bytes are unreadable, the last item is `None`.
pub(super) fn entries(bytes: &[u8]) -> impl Iterator<Item = Option<Entry<'_>>> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest.filter(|bytes| !bytes.is_empty())?;
        let split = split_first(bytes);
        rest = split.as_ref().map(|(_, rest)| *rest);
        Some(split.map(|(entry, _)| entry))
    })
}

fn split_first(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let (lapses_10s, rest) = bytes.split_first_chunk::<4>()?;
    let (&length, rest) = rest.split_first()?;
    let (id, rest) = rest.split_at_checked(if length == 0 { 16 } else { length.into() })?;
    let whole = bytes.get(..bytes.len() - rest.len())?;
    Some((Entry { lapses_10s: u32::from_be_bytes(*lapses_10s).into(), is_uuid: length == 0, id, whole }, rest))
}

/// The form of a canonical UUID: its number of characters, and the bytes that have a hyphen before them.
const UUID_CHARS: usize = 36;
/// Of a UUID: when it lapses, the length 0, and its bytes.
const UUID_ENTRY_BYTES: usize = 4 + 1 + 16;
const HYPHEN_BEFORE: [usize; 4] = [4, 6, 8, 10];

/// The bytes of a canonical UUID in lower case; `None` for anything else.
pub(super) fn uuid_bytes(id: &str) -> Option<[u8; 16]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut rest = Some(id.as_bytes()).filter(|id| id.len() == UUID_CHARS)?;
    let mut uuid = [0; 16];
    for (n, byte) in uuid.iter_mut().enumerate() {
        if HYPHEN_BEFORE.contains(&n) {
            rest = rest.strip_prefix(b"-")?;
        }
        let (&[high, low], after) = rest.split_first_chunk()?;
        *byte = digit(high)? << 4 | digit(low)?;
        rest = after;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_with_an_id_outside_printable_ascii_is_damaged() {
        let bundle = |id: &[u8]| Bundle::from_bytes([&[0, 0, 0, 1, 2], id].concat());
        assert!(bundle(b" ~").is_some());
        for id in [b"a\x1f", b"a\x7f", b"\xc3\xa9"] {
            assert_eq!(bundle(id), None, "{id:?}");
        }
    }

    #[test]
    fn a_bundle_is_read_whole_or_not_at_all() {
        let uuid = [&[0, 0, 0, 1, 0][..], &[0xff; 16]].concat();
        let text = [0, 0, 0, 1, 1, b'a'];
        let count = |parts: &[&[u8]]| Bundle::from_bytes(parts.concat()).map(|bundle| bundle.len());
        assert_eq!(count(&[&uuid, &text]), Some(2));
        for damaged in [&uuid[..20], &text[..5], &text[..4], &[0, 0, 0, 1, 1, 0x1f]] {
            assert_eq!(count(&[&text, damaged]), None, "{damaged:?}");
        }
    }

    #[test]
    fn only_a_canonical_uuid_in_lower_case_is_taken_for_one() {
        let bytes = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10];
        assert_eq!(uuid_bytes("01234567-89ab-cdef-fedc-ba9876543210"), Some(bytes));
        for other in [
            "01234567-89AB-cdef-fedc-ba9876543210",
            "01234567-89ag-cdef-fedc-ba9876543210",
            "0123456-789ab-cdef-fedc-ba9876543210",
            "01234567-89abcdef--fedc-ba9876543210",
            "01234567-89ab-cdef-fedc-ba98765432100",
            "0123456789abcdeffedcba9876543210",
        ] {
            assert_eq!(uuid_bytes(other), None, "{other}");
        }
    }
}
