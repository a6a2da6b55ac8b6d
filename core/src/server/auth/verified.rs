//! Tokens whose signature was right, so that it isn't checked with each request: who they are of, or why they are refused all the same.
//!
//! Invariants:
//! - At most [`TOKENS_MAX`] are kept, those that were used last. No token is kept itself, only its hash.
//! - An entry is found by the key that verified it: once that key is gone, or is another one, so is the entry.

use super::token::Verified;
use std::collections::BTreeMap;
use std::rc::Rc;

/// So many are kept.
pub const TOKENS_MAX: usize = 2048;

type Hash = [u8; 32];
type Known = Result<Rc<Verified>, &'static str>;

/// Two generations: an entry of the older one that is used moves to the younger; once that is full, the older one goes.
#[derive(Debug, Default)]
pub(super) struct VerifiedTokens {
    younger: BTreeMap<Hash, Known>,
    older: BTreeMap<Hash, Known>,
}

impl VerifiedTokens {
    pub fn get(&mut self, hash: &Hash) -> Option<Known> {
        if let Some(verified) = self.younger.get(hash) {
            return Some(verified.clone());
        }
        let verified = self.older.remove(hash)?;
        self.insert(*hash, verified.clone());
        Some(verified)
    }

    pub fn insert(&mut self, hash: Hash, verified: Known) {
        if self.younger.len() >= TOKENS_MAX / 2 {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(hash, verified);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_holds_more_than_its_bound_and_keeps_what_is_used() {
        let mut tokens = VerifiedTokens::default();
        let verified = Ok(Rc::new(Verified::default()));
        let hash = |n: usize| -> Hash { std::array::from_fn(|at| n.to_be_bytes().get(at).copied().unwrap_or(0)) };
        tokens.insert(hash(0), verified.clone());
        for n in 1..10_000 {
            tokens.insert(hash(n), verified.clone());
            assert!(tokens.get(&hash(0)).is_some(), "{n}: used all the time");
            assert!(tokens.younger.len() + tokens.older.len() <= TOKENS_MAX);
        }
        assert!(tokens.get(&hash(1)).is_none());
    }
}
