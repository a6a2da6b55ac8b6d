//! A map whose keys are numbers: requests by their ticket, attempts, changes.
//!
//! Invariant: the entries are in the order of their numbers.
//!
//! Written by hand, with the values in boxes, so that the same machine code moves all types and the module is small.
//! The number of entries is bounded.

/// A map whose keys are numbers.
#[derive(Debug)]
pub struct Numbered<T>(Vec<(u64, Box<T>)>);

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Numbered<T> {
    /// Makes an empty map.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Inserts a value, before the first that already has this number.
    pub fn insert(&mut self, number: u64, value: impl Into<Box<T>>) {
        let at = self.place(number);
        self.0.insert(at, (number, value.into()));
    }

    /// Removes a value.
    pub fn remove(&mut self, number: &u64) -> Option<Box<T>> {
        let at = self.at(number)?;
        Some(self.0.remove(at).1)
    }

    /// The value with this number.
    pub fn get(&self, number: &u64) -> Option<&T> {
        self.0.get(self.at(number)?).map(|(_, value)| &**value)
    }

    /// The value with this number, to change.
    pub fn get_mut(&mut self, number: &u64) -> Option<&mut T> {
        let at = self.at(number)?;
        self.0.get_mut(at).map(|(_, value)| &mut **value)
    }

    fn at(&self, number: &u64) -> Option<usize> {
        let at = self.place(*number);
        self.0.get(at).filter(|(each, _)| each == number).map(|_| at)
    }

    /// The position where the number is, or would be.
    #[inline(never)]
    fn place(&self, number: u64) -> usize {
        self.0.partition_point(|(each, _)| *each < number)
    }

    /// All values with their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&u64, &T)> {
        self.0.iter().map(|(number, value)| (number, &**value))
    }

    /// All values with their numbers, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&u64, &mut T)> {
        self.0.iter_mut().map(|(number, value)| (&*number, &mut **value))
    }

    /// All numbers.
    pub fn keys(&self) -> impl Iterator<Item = &u64> {
        self.iter().map(|(number, _)| number)
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_removed_and_changed_by_number_and_listed_in_order() {
        let mut letters = Numbered::default();
        for (number, letter) in [(2, 'b'), (3, 'c'), (1, 'a')] {
            letters.insert(number, letter);
        }
        assert_eq!(letters.iter().collect::<Vec<_>>(), [(&1, &'a'), (&2, &'b'), (&3, &'c')]);
        assert_eq!(letters.remove(&2), Some(Box::new('b')));
        assert_eq!((letters.remove(&2), letters.get(&2), letters.get(&3)), (None, None, Some(&'c')));
        if let Some(letter) = letters.get_mut(&3) {
            *letter = 'd';
        }
        assert_eq!((letters.values().collect::<String>(), letters.len()), ("ad".to_owned(), 2));
    }
}
