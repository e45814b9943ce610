//! Ranges around launches on the time line of a profiler, if the environment has `CUTLET_NVTX=1`.
//!
//! NVTX has no separate library. A profiler such as Nsight Systems names one of its libraries in
//! `NVTX_INJECTION64_PATH`. The program opens it and calls `InitializeInjectionNvtx2`. That
//! function requests tables of pointers and stores its functions there. This file calls two of
//! them. Without a profiler, no library is opened.

use std::ffi::{CString, OsStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The function that returns a table by its number.
type Tables = unsafe extern "C" fn(u32) -> *const c_void;
/// The entry point of a profiler's library.
type Initialise = unsafe extern "C" fn(Tables) -> c_int;
type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;

/// The number of functions of each module, plus one. Modules and functions are numbered from 1
/// on; function 0 is unused.
const MODULES: [usize; 6] = [16, 9, 15, 7, 16, 7];
const MOST: usize = 16;

/// The module of the ranges, and the numbers of its functions.
const CORE: usize = 0;
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;

/// The numbers of the tables.
const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;

/// The entries of the tables, in which a profiler stores its functions.
static PLACES: [[AtomicPtr<c_void>; MOST]; MODULES.len()] =
    [const { [const { AtomicPtr::new(null_mut()) }; MOST] }; MODULES.len()];

/// The addresses of the entries of a module, with null at both ends.
struct Addresses([*const AtomicPtr<c_void>; MOST + 1]);

// SAFETY: these are addresses of statics, which any thread may write.
unsafe impl Sync for Addresses {}
// SAFETY: as above.
unsafe impl Send for Addresses {}

fn addresses(module: usize) -> &'static Addresses {
    static ALL: OnceLock<Vec<Addresses>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let of = |places: &'static [AtomicPtr<c_void>; MOST], count: usize| {
            Addresses(std::array::from_fn(|at| if (1..count).contains(&at) { &raw const places[at] } else { null() }))
        };
        PLACES.iter().zip(MODULES).map(|(places, count)| of(places, count)).collect()
    });
    &all[module]
}

#[repr(C)]
struct Callbacks {
    size: usize,
    module_table: unsafe extern "C" fn(c_uint, *mut *const *const AtomicPtr<c_void>, *mut c_uint) -> c_int,
}

static CALLBACK_TABLE: Callbacks = Callbacks { size: size_of::<Callbacks>(), module_table };

/// Returns the entries of a module, and their number.
///
/// # Safety
/// The pointers are null, or valid for writes.
unsafe extern "C" fn module_table(
    module: c_uint,
    table: *mut *const *const AtomicPtr<c_void>,
    count: *mut c_uint,
) -> c_int {
    let module = (module as usize).wrapping_sub(1);
    if module >= MODULES.len() {
        return 0;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !count.is_null() {
            *count = MODULES[module] as c_uint;
        }
        if !table.is_null() {
            *table = addresses(module).0.as_ptr();
        }
    }
    1
}

#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_version: unsafe extern "C" fn(u32),
}

static VERSION_TABLE: VersionInfo =
    VersionInfo { size: size_of::<VersionInfo>(), version: 3, reserved: 0, set_version };

/// The version of the profiler's side, which is never read.
static THEIR_VERSION: AtomicU32 = AtomicU32::new(0);

/// # Safety
/// None.
unsafe extern "C" fn set_version(version: u32) {
    THEIR_VERSION.store(version, Ordering::Relaxed);
}

/// # Safety
/// None.
unsafe extern "C" fn tables(number: u32) -> *const c_void {
    match number {
        CALLBACKS => (&raw const CALLBACK_TABLE).cast(),
        VERSION_INFO => (&raw const VERSION_TABLE).cast(),
        _ => null(),
    }
}

/// The functions of a profiler for ranges.
struct Profiler {
    push: Push,
    pop: Pop,
}

/// Lets a profiler store its functions; `None` if it has none for ranges.
///
/// # Safety
/// `initialise` is the function of a profiler's library, which remains open.
unsafe fn attach(initialise: Initialise) -> Option<Profiler> {
    // SAFETY: the tables are as the profiler expects them.
    if unsafe { initialise(tables) } == 0 {
        return None;
    }
    let function = |number: usize| Some(PLACES[CORE][number].load(Ordering::Acquire)).filter(|place| !place.is_null());
    let (push, pop) = (function(RANGE_PUSH)?, function(RANGE_POP)?);
    // SAFETY: these entries have functions of these types.
    unsafe {
        Some(Profiler {
            push: std::mem::transmute::<*mut c_void, Push>(push),
            pop: std::mem::transmute::<*mut c_void, Pop>(pop),
        })
    }
}

/// Opens the profiler's library.
fn open(path: &OsStr) -> Option<Profiler> {
    // SAFETY: the library is named by the user, or by the profiler that the user started, who is
    // responsible for its initializers.
    let library = unsafe { libloading::Library::new(path) }.ok()?;
    // SAFETY: a function of this name has this type.
    let initialise = unsafe { library.get::<Initialise>(b"InitializeInjectionNvtx2\0").ok().map(|symbol| *symbol) }?;
    // Its functions are called until the program ends.
    std::mem::forget(library);
    // SAFETY: the library remains open.
    unsafe { attach(initialise) }
}

/// Returns the profiler, if ranges are requested and there is one. Only the first call looks it up.
#[inline]
fn profiler() -> Option<&'static Profiler> {
    static FOUND: OnceLock<Option<Profiler>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            std::env::var_os("CUTLET_NVTX").filter(|value| !value.is_empty() && value != "0")?;
            open(&std::env::var_os("NVTX_INJECTION64_PATH").filter(|path| !path.is_empty())?)
        })
        .as_ref()
}

/// A range of this thread, which its drop ends.
pub(crate) struct Range(Pop);

impl Range {
    /// Begins a range, if ranges are requested and there is a profiler.
    #[inline]
    pub fn begin<'a>(name: impl FnOnce() -> &'a str) -> Option<Range> {
        profiler().map(|profiler| Range::named(profiler, name()))
    }

    #[cold]
    fn named(profiler: &Profiler, name: &str) -> Range {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the text lives during the call, which copies it.
        unsafe { (profiler.push)(name.as_ptr()) };
        Range(profiler.pop)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: this thread has begun the range.
        unsafe { (self.0)() };
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::sync::Mutex;

    use super::*;

    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    unsafe extern "C" fn push(name: *const c_char) -> c_int {
        // SAFETY: a C string, by the protocol.
        let name = unsafe { CStr::from_ptr(name) };
        SEEN.lock().expect("no panic").push(name.to_string_lossy().into_owned());
        0
    }

    unsafe extern "C" fn pop() -> c_int {
        SEEN.lock().expect("no panic").push("end".into());
        0
    }

    /// The entry point of a profiler that only accepts ranges.
    unsafe extern "C" fn initialise(tables: Tables) -> c_int {
        // SAFETY: tables of these numbers have these types.
        unsafe {
            let version = &*tables(VERSION_INFO).cast::<VersionInfo>();
            let callbacks = &*tables(CALLBACKS).cast::<Callbacks>();
            assert!(version.size == 24 && version.version >= 2 && callbacks.size == 16 && tables(2).is_null());
            (version.set_version)(3);
            assert_eq!((callbacks.module_table)(7, null_mut(), null_mut()), 0);
            for (module, expected) in (1..).zip(MODULES) {
                let (mut table, mut count) = (null(), 0);
                assert_eq!((callbacks.module_table)(module, null_mut(), &mut count), 1);
                assert_eq!((callbacks.module_table)(module, &mut table, null_mut()), 1);
                assert_eq!(count as usize, expected);
                let table = std::slice::from_raw_parts(table, expected + 1);
                assert!(table[0].is_null() && table[expected].is_null());
                assert!(table[1..expected].iter().all(|place| !place.is_null()));
                if module == 1 {
                    (*table[RANGE_PUSH]).store(push as *mut c_void, Ordering::Release);
                    (*table[RANGE_POP]).store(pop as *mut c_void, Ordering::Release);
                }
            }
        }
        1
    }

    #[test]
    fn a_profiler_gets_ranges() {
        // SAFETY: it is the entry point of a profiler.
        let profiler = unsafe { attach(initialise) }.expect("functions");
        let outer = Range::named(&profiler, "softmax");
        drop(Range::named(&profiler, "vadd"));
        drop(outer);
        assert_eq!(*SEEN.lock().expect("no panic"), ["softmax", "vadd", "end", "end"]);
        assert_eq!(THEIR_VERSION.load(Ordering::Relaxed), 3);
    }
}
