//! Lists from iterators, by one loop for each type of element.
//!
//! `Iterator::collect` is compiled for each closure of an adapter, as five functions. Here only
//! `next` is. The names are those of the crate itertools.

/// Methods that collect the elements of an iterator in a list.
pub(crate) trait CollectVec: Iterator + Sized {
    /// Returns all elements.
    fn collect_vec(mut self) -> Vec<Self::Item> {
        fill(&mut || self.next())
    }

    /// Returns all elements.
    ///
    /// # Errors
    /// The first error among the elements. Later elements are not computed.
    fn try_collect_vec<T, E>(mut self) -> Result<Vec<T>, E>
    where
        Self: Iterator<Item = Result<T, E>>,
    {
        try_fill(&mut || self.next())
    }
}

impl<I: Iterator> CollectVec for I {}

fn fill<T>(next: &mut dyn FnMut() -> Option<T>) -> Vec<T> {
    let mut list = Vec::new();
    while let Some(element) = next() {
        list.push(element);
    }
    list
}

fn try_fill<T, E>(next: &mut dyn FnMut() -> Option<Result<T, E>>) -> Result<Vec<T>, E> {
    let mut list = Vec::new();
    while let Some(element) = next() {
        list.push(element?);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_those_of_the_standard_library() {
        for count in 0..5 {
            let numbers = || (0..count).map(|i| i * i);
            assert_eq!(numbers().collect_vec(), numbers().collect::<Vec<_>>());
            let fails = |bound: i32| numbers().map(move |i| if i < bound { Ok(i) } else { Err(i) });
            for bound in 0..20 {
                assert_eq!(fails(bound).try_collect_vec(), fails(bound).collect::<Result<Vec<_>, _>>());
            }
        }
    }

    #[test]
    fn nothing_is_computed_after_an_error() {
        let mut computed = 0;
        let elements = (0..9).map(|i| {
            computed += 1;
            if i == 3 { Err(i) } else { Ok(i) }
        });
        assert_eq!(elements.try_collect_vec(), Err(3));
        assert_eq!(computed, 4);
    }
}
