//! Sorts, scans, selection and sampling.
