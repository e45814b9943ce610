//! The cpu back end: an interpreter, the definition of what every op means.
