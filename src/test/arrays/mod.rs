//! Arrays of a case: elements and their values, arrangements in memory, arrays of a reference.

pub(super) mod arrangement;
pub(super) mod array;
pub(super) mod element;
pub(super) mod host;
pub(super) mod values;
