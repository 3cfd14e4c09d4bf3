//! Sets of small numbers that grow as needed: nodes that refused, domains that are known.

/// What is not in it is absent, however large.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(Vec<u64>);

const BITS: usize = u64::BITS as usize;

impl Marks {
    /// All numbers below `count`.
    pub fn all(count: usize) -> Self {
        let mut words = vec![u64::MAX; count.div_ceil(BITS)];
        if let Some(last) = words.last_mut()
            && !count.is_multiple_of(BITS)
        {
            *last = (1 << (count % BITS)) - 1;
        }
        Self(words)
    }

    pub fn contains(&self, number: usize) -> bool {
        self.0.get(number / BITS).is_some_and(|word| word & (1 << (number % BITS)) != 0)
    }

    pub fn insert(&mut self, number: usize) {
        if number / BITS >= self.0.len() {
            self.0.resize(number / BITS + 1, 0);
        }
        self.0[number / BITS] |= 1 << (number % BITS);
    }

    pub fn remove(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / BITS) {
            *word &= !(1 << (number % BITS));
        }
    }

    pub fn set(&mut self, number: usize, is_in: bool) {
        if is_in {
            self.insert(number);
        } else {
            self.remove(number);
        }
    }

    pub fn is_clear(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn keep_only(&mut self, others: &Self) {
        for (at, word) in self.0.iter_mut().enumerate() {
            *word &= others.0.get(at).copied().unwrap_or(0);
        }
    }

    pub fn take_away(&mut self, others: &Self) {
        for (word, other) in self.0.iter_mut().zip(&others.0) {
            *word &= !other;
        }
    }

    pub fn add_all(&mut self, others: &Self) {
        if self.0.len() < others.0.len() {
            self.0.resize(others.0.len(), 0);
        }
        for (word, other) in self.0.iter_mut().zip(&others.0) {
            *word |= other;
        }
    }

    /// The smallest number that is in both.
    pub fn first_common(&self, other: &Self) -> Option<usize> {
        self.0
            .iter()
            .zip(&other.0)
            .enumerate()
            .find_map(|(at, (one, two))| (one & two != 0).then(|| (at, one & two)))
            .map(|(at, word)| at * BITS + word.trailing_zeros() as usize)
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros() as usize;
                    left &= left - 1;
                    at * BITS + bit
                })
            })
        })
    }
}

impl FromIterator<usize> for Marks {
    fn from_iter<T: IntoIterator<Item = usize>>(numbers: T) -> Self {
        let mut marks = Self::default();
        for number in numbers {
            marks.insert(number);
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_in_and_nothing_else() {
        let marks: Marks = [3, 64, 200].into_iter().collect();
        assert_eq!(marks.iter().collect::<Vec<_>>(), [3, 64, 200]);
        assert!(marks.contains(64) && !marks.contains(65) && !marks.contains(10_000));
        assert_eq!(Marks::all(65).iter().count(), 65);
        assert_eq!(marks.first_common(&Marks::all(200)), Some(3));
    }

    #[test]
    fn sets_are_narrowed_and_widened() {
        let mut marks = Marks::all(130);
        marks.keep_only(&[1, 129, 500].into_iter().collect());
        assert_eq!(marks.iter().collect::<Vec<_>>(), [1, 129]);
        marks.take_away(&[1].into_iter().collect());
        marks.add_all(&[300].into_iter().collect());
        assert_eq!(marks.iter().collect::<Vec<_>>(), [129, 300]);
        marks.set(300, false);
        marks.remove(129);
        assert!(marks.is_clear());
    }
}
