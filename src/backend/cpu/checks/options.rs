//! Checks on request: which there are. What they look for is allowed, has a meaning here, and is a mistake all the same.

/// Which checks are made while a kernel runs, beside those that always are: on the cpu back end all of these, on the ptx
/// back end [`bounds`](Checks::bounds) alone.
///
/// What a kernel computes is the same with and without. Of numbers that a check finds doubtful (a quotient by zero, a sum
/// that wrapped, memory that nobody wrote) it is an error only to use them: to store them, to branch on them, to take them
/// for an index. Elements that `select` leaves out, or that lie outside of the array at a store, are not used.
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
/// let launch = ct::Launch::new(4).checks(ct::Checks::all());
/// let error = launch.launch(all_the_same, (&mut y,)).unwrap_err().to_string();
/// assert!(error.contains("element 0 of an array of 64"), "{error}");
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Checks {
    /// An element that one tile block writes and another one reads or writes, unless both do so by atomic or ordered
    /// accesses, or an acquiring access puts the one behind the other.
    pub races: bool,
    /// A tile that lies wholly outside of its array (which has elements): it reads as padding, and is not written. On the
    /// ptx back end instead: promises that are broken (`check_bounds(false)`, `assume_bounds`, `assume_divisible_by`), which
    /// the cpu back end always checks.
    pub bounds: bool,
    /// Memory of a tile block's own ([`scratch`](crate::scratch)) that is used before it was written. (Arrays of a device
    /// always were: `zeros`, `full`, `array`.)
    pub unwritten: bool,
    /// Integers divided by zero: `/`, `%`, `floor_div`, `ceil_div`, `trunc_div`, `modulo`.
    pub division: bool,
    /// Shifts by the width or more: `<<`, `>>`.
    pub shifts: bool,
    /// Numbers that do not fit the integer type of a `cast`: too large or too small, NaN, negative ones to unsigned types.
    /// `wrapping_cast` is for low bits, and conversions between integers of one width are no operation.
    pub casts: bool,
    /// `+`, `-`, `*` of integers that do not fit the type, also those of `sum`, `prod`, `cumsum`, `cumprod`, and the least
    /// integer divided by -1. `wrapping_add`, `wrapping_sub` and `wrapping_mul` are for numbers that may wrap.
    pub overflow: bool,
}

/// The names of the checks.
const NAMES: [&str; 7] = ["races", "bounds", "unwritten", "division", "shifts", "casts", "overflow"];

impl Checks {
    /// All checks.
    ///
    /// ```
    /// # use cutlet as ct;
    /// assert!(ct::Checks::all().overflow && ct::Checks::all().any());
    /// ```
    pub fn all() -> Checks {
        Checks { races: true, bounds: true, unwritten: true, division: true, shifts: true, casts: true, overflow: true }
    }

    /// None, as where nothing else is said.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let only = ct::Checks { division: true, ..ct::Checks::none() };
    /// assert_eq!(only, "division".parse()?);
    /// # Ok::<(), String>(())
    /// ```
    pub fn none() -> Checks {
        Checks::default()
    }

    /// Is there one?
    ///
    /// ```
    /// # use cutlet as ct;
    /// assert!(!ct::Checks::none().any());
    /// ```
    pub fn any(self) -> bool {
        self != Checks::none()
    }

    /// Those that are in both.
    pub(crate) fn and(self, mut other: Checks) -> Checks {
        let mut both = self;
        for name in NAMES {
            if let (Some(here), Some(there)) = (both.named(name), other.named(name)) {
                *here &= *there;
            }
        }
        both
    }

    /// Is there one that looks at numbers? Those see the kernel as it was written, before all passes.
    pub(crate) fn of_values(self) -> bool {
        self.unwritten || self.division || self.shifts || self.casts || self.overflow
    }

    /// The check of this name.
    fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "races" => &mut self.races,
            "bounds" => &mut self.bounds,
            "unwritten" => &mut self.unwritten,
            "division" => &mut self.division,
            "shifts" => &mut self.shifts,
            "casts" => &mut self.casts,
            "overflow" => &mut self.overflow,
            _ => return None,
        })
    }
}

impl std::str::FromStr for Checks {
    type Err = String;

    /// `all`, or names of checks with commas between.
    fn from_str(text: &str) -> Result<Checks, String> {
        let mut checks = Checks::none();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match checks.named(name) {
                Some(check) => *check = true,
                None if name == "all" => checks = Checks::all(),
                None => {
                    return Err(format!("unknown check `{name}`: expected all, {}", NAMES.join(", ")));
                }
            }
        }
        Ok(checks)
    }
}
