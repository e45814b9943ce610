//! Check of unwritten memory on a GPU: passes the records of the arrays of a launch to its kernel.
//!
//! The record belongs to the allocation and outlives the launch. An array without a record gets one
//! for this launch, in which every element is written.

use crate::util::collect::CollectVec as _;
use std::sync::Arc;

use super::ShadowMemory;
use crate::backend::ParamWord;
use crate::error::Result;
use crate::ir::recording::WrittenArray;
use crate::kernel::AnyArgs;
use crate::runtime::{Device, Memory};

/// Check of a compiled kernel.
pub(crate) struct UnwrittenCheck {
    arrays: Vec<WrittenArray>,
}

/// Record of an array during one launch.
pub(crate) struct Record {
    bytes: Arc<Memory>,
    /// Address of the byte of the first element of the array.
    word: ParamWord,
}

impl Record {
    pub(crate) fn shadow(&self) -> ShadowMemory<'_> {
        ShadowMemory { memory: &self.bytes, word: self.word }
    }
}

impl UnwrittenCheck {
    pub fn new(arrays: &[WrittenArray]) -> UnwrittenCheck {
        UnwrittenCheck { arrays: arrays.to_vec() }
    }

    /// Returns the records of the arrays of a launch with these parameter words.
    ///
    /// # Errors
    /// Errors of the allocation of the records of arrays that have none.
    #[track_caller]
    pub fn records(&self, device: Device, words: &[ParamWord], args: &dyn AnyArgs) -> Result<Vec<Record>> {
        self.arrays.iter().map(|array| record(array, device, words[array.param], args)).try_collect_vec()
    }

    /// Records a write of all elements of the arrays that the kernel may write without a record:
    /// by tables of arrays and addresses.
    ///
    /// # Errors
    /// Errors of earlier work on the device.
    pub fn mark_others(&self, words: &[ParamWord], args: &dyn AnyArgs) -> Result<()> {
        mark_written(args, &|start, bytes| {
            self.arrays.iter().any(|array| words[array.param].wrapping_sub(start) < bytes)
        })
    }
}

/// Records a write of all elements of the arrays that a kernel may write, except those at addresses
/// for which `has_record` returns true.
///
/// # Errors
/// Errors of earlier work on the device.
pub(crate) fn mark_written(args: &dyn AnyArgs, has_record: &dyn Fn(u64, u64) -> bool) -> Result<()> {
    let mut result = Ok(());
    args.memory(&mut |used| {
        let memory = used.memory();
        if result.is_ok() && used.writes() && !has_record(memory.address(), memory.len() as u64) {
            result = memory.mark_written();
        }
    });
    result
}

#[track_caller]
fn record(array: &WrittenArray, device: Device, address: u64, args: &dyn AnyArgs) -> Result<Record> {
    let (mut own, mut elements) = (Ok(None), 1);
    args.memory(&mut |used| {
        let memory = used.memory();
        let offset = address.wrapping_sub(memory.address());
        if offset >= memory.len() as u64 || !matches!(own, Ok(None)) {
            return;
        }
        elements = ((memory.len() as u64 - offset) / array.bytes) as usize;
        own = memory.write_record().map(|record| {
            let record = record.filter(|record| record.unit == array.bytes)?;
            Some(Record { bytes: record.bytes.clone(), word: record.bytes.address() + offset / record.unit })
        });
    });
    if let Some(record) = own? {
        return Ok(record);
    }
    let bytes = Arc::new(device.full([elements.max(1)], 1u8)?.memory);
    Ok(Record { word: bytes.address(), bytes })
}
