//! Arrays that belong to compiled kernels.

use crate::util::collect::CollectVec as _;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use crate::dtype::DType;
use crate::element::Number;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, ConstData, Global as Declared, Opcode, Type};
use crate::tile::{ArrayHandle, ArrayMut, Place, Trace, caller_location, record};

/// Alignment of globals in bytes: that of wide accesses.
const ALIGNMENT: u64 = 16;

/// An array of `N` numbers that belongs to a compiled kernel: a ticket counter, a lock, or a value
/// that one launch stores for the next one.
///
/// It is a `static`. A kernel makes an array of it by [`Global::array`].
///
/// # Lifetime
/// Each compiled kernel has its own instance on its device. The instance has the initial values
/// when the kernel is loaded, is shared by all launches of the kernel, and is freed with it. Two
/// kernels that name one static have two instances.
///
/// A kernel is compiled again for:
///
/// * another device, other constants, hints and back ends,
/// * arrays of another form: alignment of the address, strides of 1, extents and strides that are
///   multiples of 16, width of indices,
/// * another line that launches it, if it is a closure that captures values or a function pointer.
///
/// [`launch`](crate::launch) may drop kernels that have not been used for long. Values that outlive
/// a launch therefore belong to a kernel of [`compile`](crate::compile). Its handle keeps one
/// compiled kernel, which launches of this form and another `compile` of it also use. The host
/// reads and writes its globals by [`Global::read`] and [`Global::write`].
///
/// All tile blocks share it, and so do launches of the kernel that run at the same time on several
/// streams.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// static TICKETS: ct::Global<u32, 1> = ct::Global::new([100]);
///
/// /// Each tile block has a number, in the order of their execution.
/// fn serve(y: ArrayMut<u32, 1>) {
///     let ticket = TICKETS.array().entry(0).atomic_add(1);
///     y.entry(ct::bid(0)).store(ticket);
/// }
///
/// let mut y = ct::Device::cpu().zeros([5])?;
/// let serve = ct::compile(serve, (&mut y,))?;
/// serve.launch(5, (&mut y,))?;
/// let mut numbers = y.to_vec()?;
/// numbers.sort();
/// assert_eq!(numbers, [100, 101, 102, 103, 104]);
/// assert_eq!(TICKETS.read(&serve)?, [105]);
/// TICKETS.write(&serve, [7])?;
/// serve.launch(1, (&mut y,))?;
/// assert_eq!(y.to_vec()?[0], 7);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Debug)]
pub struct Global<T, const N: usize> {
    initial: [T; N],
    place: Place,
}

impl<T, const N: usize> Global<T, N> {
    /// With these values at first. Where it is written names it in the code.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// static SEEN: ct::Global<i32, 2> = ct::Global::new([10, 20]);
    ///
    /// fn kernel(y: ArrayMut<i32, 1>) {
    ///     y.store(0, SEEN.array().load(0, [2]));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([2])?;
    /// ct::launch(kernel, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [10, 20]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub const fn new(initial: [T; N]) -> Global<T, N> {
        Global { initial, place: Location::caller() }
    }

    /// Returns the name in the module, which differs from that of each kernel. Several statics of
    /// one macro have the same place, and are numbered.
    pub(crate) fn name(&'static self) -> String {
        /// Statics that share a place, by address.
        static STATICS: Mutex<Vec<(Place, usize)>> = Mutex::new(Vec::new());
        let address = std::ptr::from_ref(self).addr();
        let mut statics = STATICS.lock().unwrap_or_else(PoisonError::into_inner);
        let here = |&(place, _): &(Place, usize)| place == self.place;
        let number = match statics.iter().filter(|other| here(other)).position(|&(_, other)| other == address) {
            Some(number) => number,
            None => {
                statics.push((self.place, address));
                statics.iter().filter(|other| here(other)).count() - 1
            }
        };
        let file: String = self.place.file().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        format!("_{file}_{}_{}_{number}", self.place.line(), self.place.column())
    }
}

impl<T: Number, const N: usize> Global<T, N> {
    /// The array, in the kernel that is being traced.
    ///
    /// # Panics
    /// Outside of a kernel.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// static CALLS: ct::Global<i32, 1> = ct::Global::new([0]);
    ///
    /// fn kernel(y: ArrayMut<i32, 1>) {
    ///     y.store_scalar(0, CALLS.array().entry(0).atomic_add(1));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([1])?;
    /// let kernel = ct::compile(kernel, (&mut y,))?;
    /// for call in 0..3 {
    ///     kernel.launch(1, (&mut y,))?;
    ///     assert_eq!(y.to_vec()?, [call]);
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn array(&'static self) -> ArrayMut<T, 1> {
        const { assert!(N > 0 && N <= 1 << 24, "a global has 1 to 2^24 elements") };
        let (place, name) = (caller_location(), self.name());
        let words = || self.initial.iter().map(|x| x.to_bits()).collect_vec();
        ArrayMut::from_handle(record(|t| {
            t.at(place);
            if !t.admits(place, Effect::Read, 0) {
                return t.poison_array(1);
            }
            t.global_array(&name, T::DTYPE, N, &words)
        }))
    }
}

impl Trace {
    /// The array of a global, which the module gets if it has not got it yet.
    fn global_array(&mut self, name: &str, dtype: DType, count: usize, words: &dyn Fn() -> Vec<u64>) -> ArrayHandle {
        let module = &mut self.builder.module;
        if !module.globals.iter().any(|global| global.name == name) {
            // Extents of tiles are powers of two.
            let mut words = words();
            words.resize(count.next_power_of_two(), 0);
            let ty = module.intern(Type::tile(dtype, [words.len() as i64]));
            let value = match words.iter().all(|&word| word == words[0]) {
                true => ConstData::Splat(words[0]),
                false => ConstData::Dense(words.into()),
            };
            let (private, constant) = (false, false);
            module.globals.push(Declared { name: name.to_owned(), ty, value, alignment: ALIGNMENT, private, constant });
        }
        let ty = self.builder.module.intern(Type::ptr(dtype));
        let base = self.emit(Opcode::GetGlobal, &[], vec![Attr::Text(name.into())], vec![], &[ty])[0];
        let extent = self.splat(DType::I32, count as u64, &[]);
        let stride = self.splat(DType::I32, 1, &[]);
        self.make_array(dtype, base, vec![extent], vec![stride], 1)
    }
}
