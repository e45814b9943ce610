//! Check of races between tile blocks: allocates the shadows of a launch, and scans them after it.
//!
//! The instrumented kernel records in the shadow of an array the smallest and the largest key of
//! each class of accesses, for each element ([`Recording`]). Two classes in conflict race at an
//! element if their keys name more than one tile block. A kernel finds the first such element of
//! each pair of classes, and the host reads the keys of that element.
//!
//! The result depends on the accesses alone: neither on the order of the tile blocks nor on timing.

use super::ShadowMemory;
use super::ordered::LogCheck;
use crate::backend::{ParamWord, cpu};
use crate::error::{Diagnostic, Error, Location, Result};
use crate::ir::Module;
use crate::ir::recording::{AccessClass, COMPLEMENT, RecordedArray, Recording, SITE_BITS};
use crate::kernel::{AnyArgs, Constant};
use crate::launch::options::Launch;
use crate::ops::{arange, bid, full};
use crate::runtime::{Device, DeviceArray, Stream};
use crate::tile::{Array, ArrayMut, Scalar, Tile};
use crate::util::collect::CollectVec as _;

/// Elements of a tile of the scan.
const SCANNED: usize = 1024;

/// Position of no element.
const NONE: i64 = i64::MAX;

/// Check of a compiled kernel.
pub(crate) struct RaceCheck {
    arrays: Vec<RecordedArray>,
    /// Recorded ops, by number.
    sites: Vec<(Option<Location>, AccessClass)>,
    log: Option<LogCheck>,
}

/// Shadow of an array during one launch.
pub(crate) struct Shadow {
    words: DeviceArray<i64, 2>,
    /// Element of the allocation at which the array begins, and the elements of the allocation.
    first: u64,
    of: u64,
}

impl Shadow {
    pub fn shadow(&self) -> ShadowMemory<'_> {
        ShadowMemory { memory: &self.words.memory, word: self.words.memory.address() }
    }
}

impl RaceCheck {
    pub fn new(module: &Module, recording: &Recording) -> RaceCheck {
        let sites = recording.sites.iter();
        let sites = sites.map(|site| (module.location(site.loc).cloned(), site.class)).collect_vec();
        let log = recording.log.as_ref().map(|logged| LogCheck::new(module, recording, logged));
        RaceCheck { arrays: recording.arrays.clone(), sites, log }
    }

    /// Returns the check of ordered accesses, if the kernel has a log.
    pub fn log(&self) -> Option<&LogCheck> {
        self.log.as_ref()
    }

    /// Allocates the shadows of a launch with these parameter words.
    ///
    /// # Errors
    /// [`Error::Argument`] while the stream is captured: the host has to wait for the launch.
    /// Errors of the allocation.
    #[track_caller]
    pub fn shadows(
        &self,
        device: Device,
        stream: Option<&Stream>,
        words: &[ParamWord],
        args: &dyn AnyArgs,
    ) -> Result<Vec<Shadow>> {
        if let Some(stream) = stream.and_then(Stream::as_gpu)
            && stream.is_captured()?
        {
            return Err(Error::argument(
                "the check of races waits for the end of its launch, and this stream is being captured: launch \
                 without `races` there",
            ));
        }
        self.arrays.iter().map(|array| shadow(array, device, words[array.param], args)).try_collect_vec()
    }

    /// Waits for the launch and returns its first race as an error.
    ///
    /// # Errors
    /// [`Error::Execution`] for a race; errors of the launch.
    #[track_caller]
    pub fn scan(&self, shadows: &[Shadow], stream: Option<&Stream>, grid: [u32; 3]) -> Result<()> {
        for (array, shadow) in self.arrays.iter().zip(shadows) {
            let conflicts = array.conflicts();
            let device = shadow.words.device();
            let mut found = device.full([conflicts.len()], NONE)?;
            let tiles = shadow.words.shape()[0].div_ceil(SCANNED);
            for (pair, &(a, b)) in conflicts.iter().enumerate() {
                let plain = Launch::new(tiles).checks(cpu::Checks::none());
                let plain = Launch { stream, ..plain };
                let columns = (a as i32, b as i32, pair as i32);
                plain.launch(first_race, (&shadow.words, &mut found, columns, Constant(SCANNED)))?;
            }
            let found = found.to_vec()?;
            let first =
                conflicts.iter().zip(&found).filter(|(_, element)| **element != NONE).min_by_key(|(_, at)| **at);
            if let Some((&pair, &element)) = first {
                return Err(self.explain(array, shadow, pair, element as usize, grid)?);
            }
        }
        Ok(())
    }

    /// Returns the error of a race at an element.
    fn explain(
        &self,
        array: &RecordedArray,
        shadow: &Shadow,
        (a, b): (usize, usize),
        element: usize,
        [width, height, _]: [u32; 3],
    ) -> Result<Error> {
        let mut bytes = vec![0; array.words() * size_of::<i64>()];
        shadow.words.memory.read(element * bytes.len(), &mut bytes)?;
        let words: Vec<i64> =
            bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().expect("8 bytes"))).collect_vec();
        let (largest, smallest) = (|class: usize| words[2 * class], |class: usize| COMPLEMENT - words[2 * class + 1]);
        let block = |key: i64| (key >> SITE_BITS) - 1;
        let pairs = [(smallest(a), largest(b)), (smallest(b), largest(a))];
        let &(one, other) = pairs.iter().find(|(x, y)| block(*x) != block(*y)).expect("two tile blocks");
        let place = |key: i64| {
            let (number, width, height) = (block(key), i64::from(width), i64::from(height));
            format!("({}, {}, {})", number % width, number / width % height, number / width / height)
        };
        let site = |key: i64| self.sites.get((key & ((1 << SITE_BITS) - 1)) as usize);
        let access = |key: i64| match site(key) {
            Some((location, class)) => (location.clone(), class.writes),
            None => (None, true),
        };
        let ((location, writes), (other_location, other_writes)) = (access(one), access(other));
        let at = other_location.map_or_else(|| "?".to_owned(), |location| location.to_string());
        let message = cpu::race_message(
            writes,
            &format!("element {} of an array of {}", shadow.first + element as u64, shadow.of),
            &format!("tile block {}", place(other)),
            (other_writes, &at),
        );
        Ok(Error::Execution(Diagnostic::new(message, location).note(format!("in tile block {}", place(one)))))
    }
}

/// Allocates the shadow of an array at this address.
#[track_caller]
fn shadow(array: &RecordedArray, device: Device, address: u64, args: &dyn AnyArgs) -> Result<Shadow> {
    let mut own = None;
    args.memory(&mut |used| {
        let offset = address.wrapping_sub(used.memory().address());
        if offset < used.memory().len() as u64 {
            own = Some((offset / array.bytes, used.memory().len() as u64 / array.bytes));
        }
    });
    let (first, of) = own.unwrap_or((0, 0));
    let elements = usize::try_from(of - first).unwrap_or(usize::MAX).max(1);
    Ok(Shadow { words: device.zeros([elements, array.words()])?, first, of })
}

/// Stores the position of the first element at which accesses of two classes by different tile
/// blocks are recorded, in entry `pair`.
fn first_race(
    shadow: Array<i64, 2>,
    found: ArrayMut<i64, 1>,
    (a, b, pair): (Scalar<i32>, Scalar<i32>, Scalar<i32>),
    tile: usize,
) {
    let column = |column: Scalar<i32>| shadow.load((bid(0), column), [tile, 1]).reshape([tile]);
    let block = |keys: Tile<i64, 1>| keys >> i64::from(SITE_BITS);
    let keys = |class: Scalar<i32>| {
        let (largest, rest) = (column(class * 2), column(class * 2 + 1));
        (largest, block(largest), block(COMPLEMENT - rest))
    };
    let ((a, a_last, a_first), (b, b_last, b_first)) = (keys(a), keys(b));
    let races = a.ne(0) & b.ne(0) & (a_last.ne(b_first) | b_last.ne(a_first));
    let position = arange(0..tile).cast::<i64>() + bid(0).cast::<i64>() * tile as i64;
    let first = races.select(position, full([tile], NONE)).reduce_min(0);
    found.atomic_store_min([pair], first.reshape([1]));
}
