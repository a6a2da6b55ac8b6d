//! Remembers tokens whose signature and claims, apart from the time, were verified, so that no signature is checked with each request.
//!
//! Invariants:
//! - It has at most 2,048 entries; a full set drops the entry that was used least recently. It stores hashes of tokens, never tokens.
//! - An entry is found by the key that verified it. Once that key is gone or replaced, so is the entry.

use super::token::Verified;
use std::rc::Rc;

/// The number of sets. The first byte of a hash selects its set, which spreads the hashes evenly.
const SETS: usize = 256;
const OF_A_SET_MAX: usize = 8;

type Hash = [u8; 32];

/// Sets of entries, each with the most recently used entry first.
#[derive(Debug)]
pub(super) struct VerifiedTokens(Vec<Vec<(Hash, Rc<Verified>)>>);

impl Default for VerifiedTokens {
    fn default() -> Self {
        Self(vec![Vec::new(); SETS])
    }
}

impl VerifiedTokens {
    pub fn get(&mut self, hash: &Hash) -> Option<Rc<Verified>> {
        let set = self.set(hash)?;
        let at = set.iter().position(|(known, _)| known == hash)?;
        set.get_mut(..=at)?.rotate_right(1);
        set.first().map(|(_, known)| known.clone())
    }

    pub fn insert(&mut self, hash: Hash, known: Rc<Verified>) {
        if let Some(set) = self.set(&hash) {
            set.truncate(OF_A_SET_MAX - 1);
            set.insert(0, (hash, known));
        }
    }

    fn set(&mut self, &[first, ..]: &Hash) -> Option<&mut Vec<(Hash, Rc<Verified>)>> {
        self.0.get_mut(usize::from(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_verified_tokens_is_bounded_and_keeps_tokens_that_are_used() {
        let mut tokens = VerifiedTokens::default();
        let verified = Rc::new(Verified::default());
        let hash = |n: usize| -> Hash { std::array::from_fn(|at| n.to_le_bytes().get(at).copied().unwrap_or(0)) };
        tokens.insert(hash(0), verified.clone());
        for n in 1..100_000 {
            tokens.insert(hash(n), verified.clone());
            assert!(tokens.get(&hash(0)).is_some(), "{n}: used all the time");
        }
        assert_eq!(tokens.0.iter().map(Vec::len).sum::<usize>(), SETS * OF_A_SET_MAX);
        assert!((99_000..100_000).all(|n| tokens.get(&hash(n)).is_some()), "the last ones, in whichever set");
        assert!(tokens.get(&hash(1)).is_none());
    }
}
