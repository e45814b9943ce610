//! Tests of the rewriting.
