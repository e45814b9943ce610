//! Lists from iterators, by one loop for each type of element.
//!
//! `Iterator::collect` is compiled again for each closure of an adapter, as five functions. Here only
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
