//! A map from request ids, for as many as two frames have.
//!
//! Most ids are asked for in order, because the SDK's begin with the time. So one comparison finds most of them: with the
//! one after the id that was asked for last, or, of a new id, with the last one. For the rest, a tree would be no faster
//! and take far more code.

use crate::id::RequestId;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A map from request ids, in their order.
#[derive(Debug)]
pub(super) struct ById<T> {
    entries: Vec<(RequestId, T)>,
    /// Where the id is likely to be that is asked for next. Atomic only because tests share an engine among threads.
    next: AtomicUsize,
}

impl<T: Clone> Clone for ById<T> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), ..Self::default() }
    }
}

impl<T> Default for ById<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), next: AtomicUsize::new(0) }
    }
}

impl<T> ById<T> {
    /// Where the entry of an id is, or would be.
    fn at(&self, id: &RequestId) -> Result<usize, usize> {
        let (entries, next) = (&self.entries, self.next.load(Ordering::Relaxed));
        let is_next = entries.get(next).is_some_and(|(known, _)| known.cmp(id).is_eq());
        let at = match entries.last() {
            _ if is_next => Ok(next),
            Some((last, _)) if last < id => Err(entries.len()),
            _ => entries.binary_search_by(|(known, _)| known.cmp(id)),
        };
        self.next.store(at.map_or_else(|at| at, |at| at + 1), Ordering::Relaxed);
        at
    }

    /// The value of an id.
    pub fn get(&self, id: &RequestId) -> Option<&T> {
        self.at(id).ok().and_then(|at| self.entries.get(at)).map(|(_, value)| value)
    }

    /// Sets the value of an id that has one.
    pub fn replace(&mut self, id: &RequestId, value: T) {
        if let Ok(at) = self.at(id)
            && let Some((_, there)) = self.entries.get_mut(at)
        {
            *there = value;
        }
    }

    /// Sets the value of an id.
    pub fn put(&mut self, id: &RequestId, value: T) {
        match self.at(id) {
            Ok(at) => {
                if let Some((_, there)) = self.entries.get_mut(at) {
                    *there = value;
                }
            }
            Err(at) => self.entries.insert(at, (id.clone(), value)),
        }
    }

    /// Takes out the entry of an id.
    pub fn remove(&mut self, id: &RequestId) {
        if let Ok(at) = self.at(id) {
            self.entries.remove(at);
        }
    }

    /// All entries, in the order of ids.
    pub fn iter(&self) -> impl Iterator<Item = (&RequestId, &T)> {
        self.entries.iter().map(|(id, value)| (id, value))
    }

    /// Takes out the entries whose values pass the test.
    pub fn extract(&mut self, mut is_out: impl FnMut(&T) -> bool) -> Self {
        let entries = self.entries.extract_if(.., |(_, value)| is_out(value)).collect();
        Self { entries, ..Self::default() }
    }

    /// Keeps the entries whose values pass the test.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.entries.retain(|(_, value)| is_kept(value));
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops the lowest entries until there are `max`. Returns the highest id of them.
    pub fn drop_lowest(&mut self, max: usize) -> Option<RequestId> {
        self.entries.drain(..self.entries.len().saturating_sub(max)).last().map(|(id, _)| id)
    }
}

impl<T> IntoIterator for ById<T> {
    type Item = (RequestId, T);
    type IntoIter = std::vec::IntoIter<(RequestId, T)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// In any order of questions and changes, whatever was asked for before.
    #[test]
    fn an_id_has_the_value_that_a_map_would_have() {
        let (mut by_id, mut map) = (ById::default(), BTreeMap::new());
        let mut random = 1_u32;
        for n in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [choice, step, high, _] = random.to_be_bytes();
            // Half of the ids follow one another.
            let number = if step < 128 { n % 64 } else { u32::from(high) };
            let id = RequestId::new(format!("id-{number:03}")).expect("an id");
            match choice {
                0..128 => assert_eq!(by_id.get(&id), map.get(&id)),
                128..180 => {
                    by_id.put(&id, n);
                    map.insert(id, n);
                }
                180..210 => {
                    by_id.replace(&id, n);
                    map.entry(id).and_modify(|value| *value = n);
                }
                210..240 => {
                    by_id.remove(&id);
                    map.remove(&id);
                }
                240..248 => {
                    let out = by_id.extract(|value| value % 2 == 0);
                    let even: Vec<_> = map.extract_if(.., |_, value| *value % 2 == 0).collect();
                    assert_eq!(out.into_iter().collect::<Vec<_>>(), even);
                }
                248..252 => {
                    by_id.retain(|value| value % 3 != 0);
                    map.retain(|_, value| *value % 3 != 0);
                }
                252.. => {
                    let mut highest = None;
                    while map.len() > 40 {
                        highest = map.pop_first().map(|(id, _)| id);
                    }
                    assert_eq!(by_id.drop_lowest(40), highest);
                }
            }
            assert!(by_id.iter().eq(&map));
            assert_eq!(by_id.len(), map.len());
        }
    }
}
