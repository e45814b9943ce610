//! Options of the requested checks. They report code that is allowed and defined on the cpu back
//! end, but probably a mistake.

/// Requested checks of a running kernel, in addition to the permanent ones. The cpu back end
/// supports all of them, the ptx back end [`bounds`](Checks::bounds), [`races`](Checks::races),
/// [`memory`](Checks::memory) and [`unwritten`](Checks::unwritten).
///
/// The checks do not change the results of a kernel. A check poisons the elements that it finds
/// invalid: a quotient by zero, a wrapped sum, unwritten memory. Only the use of a poisoned element
/// is an error: a store, a branch, an index. An element that `select` discards, or that a store
/// excludes because it is outside of the array, is not used.
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
    /// An element that one tile block writes and another one reads or writes. Excepted are two
    /// accesses that are atomic or ordered, and accesses that an acquiring access orders. On the
    /// ptx back end, large arrays of kernels with acquires and releases are sampled.
    pub races: bool,
    /// A tile entirely outside of its nonempty array: its load returns padding, its store has no
    /// effect. An access by a computed address that is in no array of the cpu device. On the ptx
    /// back end instead: broken assumptions (`check_bounds(false)`, `assume_bounds`,
    /// `assume_divisible_by`), which the cpu back end always checks.
    pub bounds: bool,
    /// Red zones around the arrays that are allocated while `CUTLET_CHECK` or
    /// [`with_memory_checks`](crate::with_memory_checks) selects this check, and poison in the
    /// elements of [`Device::unspecified`](crate::Device::unspecified). Each launch that uses such
    /// arrays compares their zones, on every back end; the checks of a launch do not change that.
    pub memory: bool,
    /// Use of memory before its first write: of memory of the tile block
    /// ([`scratch`](crate::scratch)), and of elements of [`Device::unspecified`] if the array is
    /// allocated while `CUTLET_CHECK` selects this check or in
    /// [`with_memory_checks`](crate::with_memory_checks). The ptx back end reports the load, the
    /// cpu back end the use.
    ///
    /// [`Device::unspecified`]: crate::Device::unspecified
    pub unwritten: bool,
    /// Integer division by zero: `/`, `%`, `floor_div`, `ceil_div`, `trunc_div`, `modulo`.
    pub division: bool,
    /// Shifts by at least the width: `<<`, `>>`.
    pub shifts: bool,
    /// Numbers that the integer type of a `cast` cannot represent: out of range, NaN, or negative
    /// for an unsigned type. `wrapping_cast` keeps the low bits without a check. Conversions
    /// between integers of one width are no operation.
    pub casts: bool,
    /// Results of integer `+`, `-`, `*` that do not fit the type, also in `sum`, `prod`, `cumsum`
    /// and `cumprod`, and the least integer divided by -1. `wrapping_add`, `wrapping_sub` and
    /// `wrapping_mul` wrap without a check.
    pub overflow: bool,
}

/// The names of the checks.
const NAMES: [&str; 8] = ["races", "bounds", "memory", "unwritten", "division", "shifts", "casts", "overflow"];

impl Checks {
    /// All checks.
    ///
    /// ```
    /// # use cutlet as ct;
    /// assert!(ct::Checks::all().overflow && ct::Checks::all().any());
    /// ```
    pub fn all() -> Checks {
        Checks {
            races: true,
            bounds: true,
            memory: true,
            unwritten: true,
            division: true,
            shifts: true,
            casts: true,
            overflow: true,
        }
    }

    /// No checks, the default.
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

    /// Returns true if at least one check is requested.
    ///
    /// ```
    /// # use cutlet as ct;
    /// assert!(!ct::Checks::none().any());
    /// ```
    pub fn any(self) -> bool {
        self != Checks::none()
    }

    /// Intersection of two sets of checks.
    pub(crate) fn and(self, mut other: Checks) -> Checks {
        let mut both = self;
        for name in NAMES {
            if let (Some(here), Some(there)) = (both.named(name), other.named(name)) {
                *here &= *there;
            }
        }
        both
    }

    /// Returns true if a check of values is requested. It sees the kernel before all passes.
    pub(crate) fn of_values(self) -> bool {
        self.unwritten || self.division || self.shifts || self.casts || self.overflow
    }

    /// Returns the check of this name.
    fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "races" => &mut self.races,
            "bounds" => &mut self.bounds,
            "memory" => &mut self.memory,
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

    /// Parses `all` or names of checks, separated by commas.
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
