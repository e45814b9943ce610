//! Checks on request: what is allowed, has a meaning here, and is a mistake all the same.
//!
//! Of the memory of a launch it is noted which tile blocks touched each element, and how. Two that touch one are in
//! conflict if one of them writes, unless both accesses are atomic or ordered. What a block does after an acquiring access
//! counts as ordered behind others: such kernels are believed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::ir::Loc;

/// Which checks the cpu back end makes while a kernel runs.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// Every tile block writes tile 0: one of them wins.
/// fn all_the_same(y: ArrayMut<i32, 1>) {
///     y.store(0, ct::full::<i32, 1>([16], ct::bid(0)));
/// }
///
/// let mut y = ct::Device::cpu().zeros([64])?;
/// let launch = ct::Launch::new(4).check(ct::Checks::all());
/// let error = launch.launch(all_the_same, (&mut y,)).unwrap_err().to_string();
/// assert!(error.contains("element 0 of an array of 64"), "{error}");
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Checks {
    /// An element that one tile block writes and another one reads or writes, unless both do so by atomic or ordered
    /// accesses. What a block does after an acquiring access counts as ordered.
    pub races: bool,
    /// A tile that lies wholly outside of its array (which has elements): it reads as padding, and is not written.
    pub bounds: bool,
}

impl Checks {
    /// All checks.
    pub fn all() -> Checks {
        Checks { races: true, bounds: true }
    }

    /// None, as where nothing else is said.
    pub fn none() -> Checks {
        Checks::default()
    }

    /// Is there one?
    pub fn any(self) -> bool {
        self != Checks::none()
    }
}

impl std::str::FromStr for Checks {
    type Err = String;

    /// `all`, or names of checks with commas between.
    fn from_str(text: &str) -> Result<Checks, String> {
        let mut checks = Checks::none();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "all" => checks = Checks::all(),
                "races" => checks.races = true,
                "bounds" => checks.bounds = true,
                _ => return Err(format!("unknown check `{name}`: expected all, races or bounds")),
            }
        }
        Ok(checks)
    }
}

/// An access of a tile block to an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub block: [u32; 3],
    pub loc: Loc,
    /// Atomic or ordered.
    pub atomic: bool,
    pub writes: bool,
}

impl Touch {
    fn conflicts(&self, other: &Touch) -> bool {
        self.block != other.block && (self.writes || other.writes) && !(self.atomic && other.atomic)
    }
}

/// Accesses of two blocks at most, of each kind: enough to find a conflict with a third one.
#[derive(Default)]
struct Element {
    touches: Vec<Touch>,
}

impl Element {
    /// The access that this one is in conflict with; else notes it.
    fn touch(&mut self, touch: Touch) -> Option<Touch> {
        if let Some(other) = self.touches.iter().find(|other| other.conflicts(&touch)) {
            return Some(*other);
        }
        let alike = |other: &&Touch| other.atomic == touch.atomic && other.writes == touch.writes;
        let known = self.touches.iter().filter(alike);
        if known.clone().count() < 2 && known.clone().all(|other| other.block != touch.block) {
            self.touches.push(touch);
        }
        None
    }
}

/// What tile blocks touched in one launch, by place.
#[derive(Default)]
pub(super) struct Watch {
    pub checks: Checks,
    elements: Mutex<HashMap<u64, Element>>,
}

impl Watch {
    pub fn new(checks: Checks) -> Watch {
        Watch { checks, elements: Mutex::default() }
    }

    /// Notes an access to elements at these places; the first conflict, with the place.
    pub fn touch(&self, places: impl Iterator<Item = u64>, touch: Touch) -> Result<(), (u64, Touch)> {
        let mut elements = self.elements.lock().unwrap_or_else(PoisonError::into_inner);
        for place in places {
            if let Some(other) = elements.entry(place).or_default().touch(touch) {
                return Err((place, other));
            }
        }
        Ok(())
    }
}
